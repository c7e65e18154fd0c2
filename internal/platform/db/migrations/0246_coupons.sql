-- +goose Up

-- Written by package plan: coupons. What one is worth never changes.
CREATE TABLE billing_coupons (
  code       TEXT PRIMARY KEY,
  points     BIGINT NOT NULL,   -- basis points of a period's price; 0: an amount
  amount     BIGINT NOT NULL,
  currency   TEXT NOT NULL,     -- of the amount
  periods    BIGINT NOT NULL,   -- that it is worth this for
  most       BIGINT NOT NULL,   -- redemptions; 0: any number
  redeemed   BIGINT NOT NULL,
  until_at   BIGINT NOT NULL,   -- 0: without an end
  created_at BIGINT NOT NULL
);

-- Written by package plan: who redeemed a coupon, once each.
CREATE TABLE billing_redemptions (
  code            TEXT NOT NULL,
  owner_id        TEXT NOT NULL,
  subscription_id TEXT NOT NULL,
  periods_left    BIGINT NOT NULL,
  PRIMARY KEY (code, owner_id)
);
CREATE INDEX billing_redemptions_subscription ON billing_redemptions (subscription_id);
