-- +goose Up

-- A seller's customers reach the dashboard at a host of the seller's own; empty: at the installation's alone.
ALTER TABLE billing_sellers ADD COLUMN host TEXT NOT NULL DEFAULT ''; -- A-labels, lower case

-- The hosts at which the control plane answers beside its own. Without billing there are none.
CREATE VIEW control_hosts AS
  SELECT host, id AS seller_id FROM billing_sellers WHERE host <> '' AND NOT EXISTS (SELECT 1 FROM billing_off);

-- What packages beside seller may know of sellers.
DROP VIEW sellers;
CREATE VIEW sellers AS SELECT id, name, series, sender, reply_to, host FROM billing_sellers;

-- Whose seller an account will be once its address is proved; empty: the installation's.
ALTER TABLE sign_ups ADD COLUMN seller_id TEXT NOT NULL DEFAULT '';

-- Under which name and at which host an account's pages and emails are. People whose account is nobody's customer see the seller of their
-- teams, if it is one alone; operators don't. Without billing there are no such names.
DROP VIEW owner_brands;
CREATE VIEW owner_brands AS
  SELECT o.owner_id, s.id AS seller_id, s.name, s.sender, s.reply_to, s.logo_digest, s.host
  FROM owner_sellers o JOIN billing_sellers s ON s.id = o.seller_id
  WHERE NOT EXISTS (SELECT 1 FROM billing_off)
  UNION ALL
  SELECT u.owner_id, s.id, s.name, s.sender, s.reply_to, s.logo_digest, s.host
  FROM users u JOIN billing_sellers s ON s.id = (
    SELECT min(o.seller_id) FROM team_members m JOIN billing_seller_owners o ON o.owner_id = m.owner_id
    WHERE m.user_id = u.id HAVING min(o.seller_id) = max(o.seller_id))
  WHERE NOT u.admin AND NOT EXISTS (SELECT 1 FROM billing_off)
    AND NOT EXISTS (SELECT 1 FROM billing_seller_owners x WHERE x.owner_id = u.owner_id);
