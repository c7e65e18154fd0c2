-- +goose Up

-- Written by package retention: accounts whose sites are going to be deleted, because their subscription ended unpaid.
CREATE TABLE retention (
  owner_id        TEXT PRIMARY KEY,
  subscription_id TEXT NOT NULL,
  notices         BIGINT NOT NULL,  -- that were sent
  delete_at       BIGINT NOT NULL,  -- when the sites are backed up, then deleted
  backups_since   BIGINT NOT NULL   -- when their backups began; 0: not yet
);

-- Accounts with sites whose last subscription ended unpaid, and that still owe an invoice which no payment is under way for.
CREATE VIEW unpaid_owners AS
  SELECT s.owner_id AS owner_id, s.id AS subscription_id, s.ended_at AS ended_at
  FROM billing_subscriptions s
  WHERE s.status = 'expired' AND s.reason = 'unpaid'
    AND NOT EXISTS (SELECT 1 FROM billing_subscriptions o WHERE o.owner_id = s.owner_id AND o.created_at > s.created_at)
    AND EXISTS (SELECT 1 FROM billing_invoices i WHERE i.owner_id = s.owner_id AND i.status = 'open' AND i.due_at > 0)
    AND NOT EXISTS (SELECT 1 FROM billing_payments p WHERE p.owner_id = s.owner_id
      AND p.status IN ('pending', 'processing', 'requires_action', 'unknown'))
    AND EXISTS (SELECT 1 FROM sites x WHERE x.owner_id = s.owner_id AND x.deleted_at = 0);
CREATE INDEX billing_subscriptions_unpaid ON billing_subscriptions (owner_id) WHERE status = 'expired' AND reason = 'unpaid';
