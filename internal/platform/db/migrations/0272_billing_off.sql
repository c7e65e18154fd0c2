-- +goose Up

-- Written by package billing: a row while the program runs without billing. What subscriptions say doesn't count then.
CREATE TABLE billing_off (
  since BIGINT NOT NULL
);

-- The edge's contract: the sites that are paused, for a month because their owner's bandwidth is used up, or in
-- month 0 until further notice.
DROP VIEW paused_sites;
CREATE VIEW paused_sites AS
  SELECT s.id AS site_id, c.month AS month
  FROM usage_caps c JOIN sites s ON s.owner_id = c.owner_id
  WHERE c.reached AND c.meter = 'bandwidth.bytes' AND s.deleted_at = 0
  UNION ALL
  SELECT s.id, 0 FROM billing_subscriptions b JOIN sites s ON s.owner_id = b.owner_id
  WHERE b.status = 'paused' AND s.deleted_at = 0 AND NOT EXISTS (SELECT 1 FROM billing_off);

-- The limits that owners have by their plan, and by grants, those included that hold at another time.
CREATE VIEW plan_limits AS
  SELECT s.owner_id AS owner_id, e.name AS name, e.value AS value
  FROM billing_subscriptions s JOIN billing_entitlements e ON e.version_id = s.version_id WHERE s.status <> 'expired'
  UNION ALL
  SELECT owner_id, name, value FROM billing_grants;
