-- +goose Up

-- Written by package billing: the card that an owner's invoices in a currency are paid with. Card numbers are the provider's.
CREATE TABLE billing_cards (
  owner_id    TEXT NOT NULL,
  currency    TEXT NOT NULL,
  provider    TEXT NOT NULL,     -- stripe
  customer    TEXT NOT NULL,     -- as the provider names the owner
  method      TEXT NOT NULL,     -- as the provider names the card; '' while none is stored
  brand       TEXT NOT NULL,
  last4       TEXT NOT NULL,
  exp_month   BIGINT NOT NULL,
  exp_year    BIGINT NOT NULL,
  declined    TEXT NOT NULL,     -- why it must not be charged any more; '' is fine
  updated_at  BIGINT NOT NULL,
  PRIMARY KEY (owner_id, currency)
);

-- Written by package billing: cards that a trial began with, by the provider's fingerprint. A card begins one trial.
CREATE TABLE billing_trial_cards (
  fingerprint TEXT PRIMARY KEY,
  owner_id    TEXT NOT NULL,
  at          BIGINT NOT NULL
);

-- Written by package billing: visits of the provider's page that stores a card, and what is to happen once it is stored.
CREATE TABLE billing_setups (
  id          TEXT PRIMARY KEY,  -- set_...
  owner_id    TEXT NOT NULL,
  currency    TEXT NOT NULL,
  session     TEXT NOT NULL,     -- as the provider names the visit; '' until it is known
  action      TEXT NOT NULL,     -- a subscription to begin, as JSON; '' is none
  digest      TEXT NOT NULL,     -- of the previewed price
  status      TEXT NOT NULL,     -- open, completed, failed or expired
  problem     TEXT NOT NULL,     -- why the subscription didn't begin
  created_at  BIGINT NOT NULL
);
CREATE INDEX billing_setups_owner ON billing_setups (owner_id, id);

-- What a payment by card was sent with: a repetition has to be the same to the byte.
ALTER TABLE billing_payments ADD COLUMN customer TEXT NOT NULL DEFAULT '';
ALTER TABLE billing_payments ADD COLUMN method TEXT NOT NULL DEFAULT '';     -- '' is entered on the provider's page
ALTER TABLE billing_payments ADD COLUMN session TEXT NOT NULL DEFAULT '';    -- of the provider's page
ALTER TABLE billing_payments ADD COLUMN sent_at BIGINT NOT NULL DEFAULT 0;   -- when it was sent first; 0: not yet
ALTER TABLE billing_payments ADD COLUMN refunded BIGINT NOT NULL DEFAULT 0;  -- with refunds that are on their way

-- Written by package billing: refunds of payments by card.
CREATE TABLE billing_refunds (
  id          TEXT PRIMARY KEY,  -- rfd_...
  payment_id  TEXT NOT NULL,
  owner_id    TEXT NOT NULL,
  amount      BIGINT NOT NULL,
  currency    TEXT NOT NULL,
  status      TEXT NOT NULL,     -- pending, completed or failed
  reference   TEXT NOT NULL,     -- as the provider names it; '' until it is known
  reason      TEXT NOT NULL,
  created_at  BIGINT NOT NULL
);
CREATE UNIQUE INDEX billing_refunds_reference ON billing_refunds (reference) WHERE reference <> '';
CREATE INDEX billing_refunds_payment ON billing_refunds (payment_id);
CREATE INDEX billing_refunds_pending ON billing_refunds (created_at) WHERE status = 'pending';

-- Written by package billing: payments that a bank took back.
CREATE TABLE billing_disputes (
  reference   TEXT PRIMARY KEY,  -- as the provider names it
  payment_id  TEXT NOT NULL,
  owner_id    TEXT NOT NULL,
  amount      BIGINT NOT NULL,
  currency    TEXT NOT NULL,
  status      TEXT NOT NULL,     -- open, won or lost
  created_at  BIGINT NOT NULL
);
CREATE INDEX billing_disputes_payment ON billing_disputes (payment_id);

-- Written by package stripe: the account at Stripe that moves money.
CREATE TABLE stripe_accounts (
  id          TEXT PRIMARY KEY,  -- sta_..., the end of its webhook's URL
  live        BOOLEAN NOT NULL,
  api_key     TEXT NOT NULL,     -- sealed
  secret      TEXT NOT NULL,     -- of webhooks, sealed; '' is none yet
  old_secret  TEXT NOT NULL,     -- the one before, sealed, while it is rotated
  read_until  BIGINT NOT NULL,   -- events up to here were listed
  compared_at BIGINT NOT NULL,   -- when payments were last compared with the ledger
  differences TEXT NOT NULL,     -- that were found then, as JSON
  created_at  BIGINT NOT NULL,
  ended_at    BIGINT NOT NULL    -- 0: in use
);
CREATE UNIQUE INDEX stripe_accounts_used ON stripe_accounts (ended_at) WHERE ended_at = 0;

-- Written by package stripe: events that Stripe sent or listed. What one is about is fetched again.
CREATE TABLE stripe_events (
  id          TEXT PRIMARY KEY,  -- evt_...
  type        TEXT NOT NULL,
  object      TEXT NOT NULL,     -- id of what it is about
  received_at BIGINT NOT NULL,
  done_at     BIGINT NOT NULL    -- 0: not yet
);
CREATE INDEX stripe_events_received ON stripe_events (received_at);
CREATE INDEX stripe_events_open ON stripe_events (received_at) WHERE done_at = 0;
