-- +goose Up

-- Written by package seller: who resells the installation's hosting under a name of their own. The installation itself is none of them.
CREATE TABLE billing_sellers (
  id          TEXT PRIMARY KEY,     -- the operator's short name for it
  name        TEXT NOT NULL,
  series      TEXT NOT NULL UNIQUE, -- that its invoices' numbers begin with; never changes
  sender      TEXT NOT NULL,        -- of emails, such as Harbor <hello@harbor.example>; empty: the installation's
  reply_to    TEXT NOT NULL,        -- empty: none
  logo        TEXT NOT NULL,        -- a PNG in base64; empty: none
  logo_digest TEXT NOT NULL,        -- SHA-256 of the PNG, in hexadecimal
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL
);

-- Written by package seller: whose customers accounts are. Those without a row are the installation's own.
CREATE TABLE billing_seller_owners (
  owner_id  TEXT PRIMARY KEY,
  seller_id TEXT NOT NULL REFERENCES billing_sellers (id),
  since     BIGINT NOT NULL
);
CREATE INDEX billing_seller_owners_seller ON billing_seller_owners (seller_id);

-- What packages beside seller may know of sellers.
CREATE VIEW sellers AS SELECT id, name, series FROM billing_sellers;

-- Who sells to an account. A team without a row of its own belongs to the seller that all of its owners belong to.
CREATE VIEW owner_sellers AS
  SELECT owner_id, seller_id FROM billing_seller_owners
  UNION ALL
  SELECT m.owner_id, min(o.seller_id)
  FROM team_members m JOIN users u ON u.id = m.user_id LEFT JOIN billing_seller_owners o ON o.owner_id = u.owner_id
  WHERE m.role = 'owner' AND EXISTS (SELECT 1 FROM billing_sellers)
    AND NOT EXISTS (SELECT 1 FROM billing_seller_owners x WHERE x.owner_id = m.owner_id)
  GROUP BY m.owner_id HAVING count(*) = count(o.seller_id) AND min(o.seller_id) = max(o.seller_id);

-- Under which name an account's pages and emails are. People whose account is nobody's customer see the seller of their teams, if it is
-- one alone; operators don't. Without billing there are no such names.
CREATE VIEW owner_brands AS
  SELECT o.owner_id, s.id AS seller_id, s.name, s.sender, s.reply_to, s.logo_digest
  FROM owner_sellers o JOIN billing_sellers s ON s.id = o.seller_id
  WHERE NOT EXISTS (SELECT 1 FROM billing_off)
  UNION ALL
  SELECT u.owner_id, s.id, s.name, s.sender, s.reply_to, s.logo_digest
  FROM users u JOIN billing_sellers s ON s.id = (
    SELECT min(o.seller_id) FROM team_members m JOIN billing_seller_owners o ON o.owner_id = m.owner_id
    WHERE m.user_id = u.id HAVING min(o.seller_id) = max(o.seller_id))
  WHERE NOT u.admin AND NOT EXISTS (SELECT 1 FROM billing_off)
    AND NOT EXISTS (SELECT 1 FROM billing_seller_owners x WHERE x.owner_id = u.owner_id);
