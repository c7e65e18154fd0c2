-- +goose Up

-- Written by package usage: days that a period of an owner's divides.
CREATE TABLE usage_divided (
  owner_id TEXT NOT NULL,
  day      BIGINT NOT NULL,
  PRIMARY KEY (owner_id, day)
);
CREATE INDEX usage_divided_day ON usage_divided (day);

-- Written by package usage: sealed hours of divided days, once usage_hours keeps them no longer. The invoice of a year is drafted when
-- the year is over.
CREATE TABLE usage_parts (
  owner_id TEXT NOT NULL,
  meter    TEXT NOT NULL,
  hour     BIGINT NOT NULL,
  quantity BIGINT NOT NULL,
  PRIMARY KEY (owner_id, meter, hour)
);
CREATE INDEX usage_parts_hour ON usage_parts (hour);

INSERT INTO usage_divided (owner_id, day)
  SELECT DISTINCT owner_id, period_start - period_start % 86400000 FROM billing_subscriptions WHERE status <> 'expired'
  UNION
  SELECT DISTINCT owner_id, period_end - period_end % 86400000 FROM billing_subscriptions WHERE status <> 'expired'
  UNION
  SELECT DISTINCT owner_id, created_at - created_at % 86400000 FROM billing_invoices WHERE cause LIKE 'change:%';
