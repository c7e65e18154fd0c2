-- +goose Up

-- At the limit of bandwidth an owner's sites get so many bytes per second; 0: they are paused.
ALTER TABLE usage_caps ADD COLUMN throttle BIGINT NOT NULL DEFAULT 0;

-- The edge's contract: the sites that are paused, for a month because their owner's bandwidth is used up, or in
-- month 0 until further notice: an invoice is unpaid, also after the subscription has ended because of that.
DROP VIEW paused_sites;
CREATE VIEW paused_sites AS
  SELECT s.id AS site_id, c.month AS month
  FROM usage_caps c JOIN sites s ON s.owner_id = c.owner_id
  WHERE c.reached AND c.throttle = 0 AND c.meter = 'bandwidth.bytes' AND s.deleted_at = 0
  UNION ALL
  SELECT s.id, 0 FROM billing_subscriptions b JOIN sites s ON s.owner_id = b.owner_id
  WHERE b.status = 'paused' AND s.deleted_at = 0 AND NOT EXISTS (SELECT 1 FROM billing_off)
  UNION ALL
  SELECT s.id, 0 FROM billing_subscriptions b JOIN sites s ON s.owner_id = b.owner_id
  WHERE b.status = 'expired' AND b.reason = 'unpaid' AND s.deleted_at = 0 AND NOT EXISTS (SELECT 1 FROM billing_off)
    AND NOT EXISTS (SELECT 1 FROM billing_subscriptions o WHERE o.owner_id = b.owner_id AND o.created_at > b.created_at)
    AND EXISTS (SELECT 1 FROM billing_invoices i WHERE i.owner_id = b.owner_id AND i.status = 'open');

-- The edge's contract: owners who have little bandwidth left in a month, or none, and how fast their sites are then.
CREATE VIEW throttled_owners AS
  SELECT owner_id, month, throttle AS rate, reached FROM usage_caps
  WHERE throttle > 0 AND (armed OR reached) AND meter = 'bandwidth.bytes';
