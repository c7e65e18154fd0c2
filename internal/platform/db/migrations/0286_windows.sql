-- +goose Up

-- What an owner used from here on counts in the window of limits that the anchor lies in; 0: from the anchor on.
ALTER TABLE billing_subscriptions ADD COLUMN counts_from BIGINT NOT NULL DEFAULT 0;
CREATE INDEX billing_subscriptions_latest ON billing_subscriptions (owner_id, created_at);

-- What windows of limits follow: the latest subscription of each owner.
CREATE VIEW limit_cycles AS
  SELECT s.owner_id AS owner_id, s.anchor AS anchor, s.counts_from AS counts_from, s.trial_end AS trial_end,
    CASE WHEN s.status IN ('canceled', 'expired') THEN s.period_end ELSE 0 END AS ends
  FROM billing_subscriptions s
  WHERE s.anchor > 0 AND NOT EXISTS (SELECT 1 FROM billing_off) AND NOT EXISTS (
    SELECT 1 FROM billing_subscriptions o WHERE o.owner_id = s.owner_id AND o.anchor > 0
      AND (o.created_at > s.created_at OR o.created_at = s.created_at AND o.id > s.id));

-- When the window begins and ends. Versions before this one know calendar months alone and leave 0.
ALTER TABLE usage_caps ADD COLUMN begins BIGINT NOT NULL DEFAULT 0;
ALTER TABLE usage_caps ADD COLUMN ends BIGINT NOT NULL DEFAULT 0;
CREATE INDEX usage_caps_ends ON usage_caps (ends);

-- The edge's contract: the sites that are paused, from begins until ends because their owner's bandwidth is used up, in
-- a month where ends is 0, or in month 0 until further notice: an invoice is unpaid, also after the subscription has ended
-- because of that.
DROP VIEW paused_sites;
CREATE VIEW paused_sites AS
  SELECT s.id AS site_id, c.month AS month, c.begins AS begins, c.ends AS ends
  FROM usage_caps c JOIN sites s ON s.owner_id = c.owner_id
  WHERE c.reached AND c.throttle = 0 AND c.meter = 'bandwidth.bytes' AND s.deleted_at = 0
  UNION ALL
  SELECT s.id, 0, 0, 0 FROM billing_subscriptions b JOIN sites s ON s.owner_id = b.owner_id
  WHERE b.status = 'paused' AND s.deleted_at = 0 AND NOT EXISTS (SELECT 1 FROM billing_off)
  UNION ALL
  SELECT s.id, 0, 0, 0 FROM billing_subscriptions b JOIN sites s ON s.owner_id = b.owner_id
  WHERE b.status = 'expired' AND b.reason = 'unpaid' AND s.deleted_at = 0 AND NOT EXISTS (SELECT 1 FROM billing_off)
    AND NOT EXISTS (SELECT 1 FROM billing_subscriptions o WHERE o.owner_id = b.owner_id AND o.created_at > b.created_at)
    AND EXISTS (SELECT 1 FROM billing_invoices i WHERE i.owner_id = b.owner_id AND i.status = 'open');

-- The edge's contract: owners who have so little bandwidth left, from begins until ends or in a month where ends is 0, that
-- their responses need loans.
DROP VIEW capped_owners;
CREATE VIEW capped_owners AS
  SELECT owner_id, month, begins, ends FROM usage_caps WHERE armed AND meter = 'bandwidth.bytes';

-- The edge's contract: owners who have little bandwidth left, or none, and how fast their sites are then; by the same times.
DROP VIEW throttled_owners;
CREATE VIEW throttled_owners AS
  SELECT owner_id, month, throttle AS rate, reached, begins, ends FROM usage_caps
  WHERE throttle > 0 AND (armed OR reached) AND meter = 'bandwidth.bytes';
