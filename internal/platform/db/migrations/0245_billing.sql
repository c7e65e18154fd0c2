-- +goose Up

-- Written by package party: who sells, and on which terms: address, taxes, days until an invoice is due, as JSON.
CREATE TABLE billing_settings (
  seller_id  TEXT PRIMARY KEY,  -- '' is the installation
  settings   TEXT NOT NULL,
  updated_at BIGINT NOT NULL
);

-- Written by package plan, read by package billing: plans. What one costs and includes is in its versions.
CREATE TABLE billing_plans (
  id         TEXT PRIMARY KEY,  -- plan_...
  seller_id  TEXT NOT NULL,
  name       TEXT NOT NULL,     -- in requests, such as pro
  title      TEXT NOT NULL,     -- for people
  created_at BIGINT NOT NULL,
  UNIQUE (seller_id, name)
);

-- Written by package plan, read by package billing: versions of plans. A row never changes.
CREATE TABLE billing_versions (
  id         TEXT PRIMARY KEY,  -- plv_...
  plan_id    TEXT NOT NULL,
  number     BIGINT NOT NULL,   -- 1 is the plan's first
  currency   TEXT NOT NULL,
  term       TEXT NOT NULL,     -- month or year
  amount     BIGINT NOT NULL,   -- of a period, in the currency's smallest unit
  trial_days BIGINT NOT NULL,
  public     BOOLEAN NOT NULL,  -- whether owners may choose it
  cost       BIGINT NOT NULL,   -- what a period costs the seller
  rates      TEXT NOT NULL,     -- what usage costs, as JSON
  created_at BIGINT NOT NULL,
  UNIQUE (plan_id, number)
);

-- Written by package plan, read by package billing: the limits of a version.
CREATE TABLE billing_entitlements (
  version_id TEXT NOT NULL,
  name       TEXT NOT NULL,
  value      BIGINT NOT NULL,
  PRIMARY KEY (version_id, name)
);

-- Written by package plan, read by package billing: exceptions for one owner, ahead of what the plan says.
CREATE TABLE billing_grants (
  id         TEXT PRIMARY KEY,  -- grn_...
  owner_id   TEXT NOT NULL,
  name       TEXT NOT NULL,
  value      BIGINT NOT NULL,
  from_at    BIGINT NOT NULL,
  until_at   BIGINT NOT NULL,   -- 0: without an end
  reason     TEXT NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX billing_grants_owner ON billing_grants (owner_id, name);

-- Written by package party (and billing): the person or company that invoices of an owner are made out to. The row is also the lock
-- of all that is billed to the owner.
CREATE TABLE billing_profiles (
  owner_id   TEXT PRIMARY KEY,
  profile    TEXT NOT NULL,     -- JSON
  vat_state  TEXT NOT NULL,     -- none, unchecked, valid or invalid
  trial_at   BIGINT NOT NULL,   -- when the owner began a trial; 0: never
  updated_at BIGINT NOT NULL
);

-- Written by package billing: how much an owner may use beyond what is included, from a moment on.
CREATE TABLE billing_budgets (
  id         TEXT PRIMARY KEY,  -- bud_..., in the order of time
  owner_id   TEXT NOT NULL,
  amount     BIGINT NOT NULL,   -- of a period
  currency   TEXT NOT NULL,
  from_at    BIGINT NOT NULL
);
CREATE INDEX billing_budgets_owner ON billing_budgets (owner_id, id);

-- Written by package billing: subscriptions. Of an owner one at most is open.
CREATE TABLE billing_subscriptions (
  id           TEXT PRIMARY KEY,  -- sub_...
  owner_id     TEXT NOT NULL,
  version_id   TEXT NOT NULL,
  next_version TEXT NOT NULL,     -- from the next period on; '' is the same
  status       TEXT NOT NULL,     -- trialing, active, past_due, paused, canceled or expired
  anchor       BIGINT NOT NULL,   -- the beginning of period 0, a whole hour
  period       BIGINT NOT NULL,   -- which one it is in; in a trial -1
  period_start BIGINT NOT NULL,
  period_end   BIGINT NOT NULL,
  trial_end    BIGINT NOT NULL,   -- 0: there was none
  cancels      BIGINT NOT NULL,   -- how often it was canceled
  reason       TEXT NOT NULL,     -- why it was canceled or has expired
  unpaid_since BIGINT NOT NULL,   -- when its oldest unpaid invoice was due; 0: none
  changes      BIGINT NOT NULL,   -- how often its plan changed within a period
  next_at      BIGINT NOT NULL,   -- when something happens by itself; 0: never
  created_at   BIGINT NOT NULL,
  ended_at     BIGINT NOT NULL
);
CREATE UNIQUE INDEX billing_subscriptions_open ON billing_subscriptions (owner_id) WHERE status <> 'expired';
CREATE INDEX billing_subscriptions_next ON billing_subscriptions (next_at) WHERE next_at > 0;

-- Written by package billing: invoices and credit notes. Once one has a number, what it says never changes.
CREATE TABLE billing_invoices (
  id              TEXT PRIMARY KEY,  -- inv_... or crn_...
  seller_id       TEXT NOT NULL,
  owner_id        TEXT NOT NULL,
  subscription_id TEXT NOT NULL,
  cause           TEXT NOT NULL,     -- period:START, change:N, final:END or credit:ID
  corrects        TEXT NOT NULL,     -- of a credit note: the invoice
  status          TEXT NOT NULL,     -- draft, open, paid, void or uncollectible; credited for a credit note
  number          TEXT NOT NULL,     -- '' while it is a draft
  currency        TEXT NOT NULL,
  net             BIGINT NOT NULL,
  tax             BIGINT NOT NULL,
  total           BIGINT NOT NULL,
  paid            BIGINT NOT NULL,   -- with credit that was used
  credited        BIGINT NOT NULL,   -- by credit notes, before it was paid
  basis           TEXT NOT NULL,     -- what it is computed from, as JSON
  document        TEXT NOT NULL,     -- what it says, as JSON; '' while it is a draft
  digest          TEXT NOT NULL,     -- SHA-256 of the document; 'draft' once it is drafted
  held            BOOLEAN NOT NULL,  -- whether it waits for the operator
  step            BIGINT NOT NULL,   -- reminders that were sent
  next_at         BIGINT NOT NULL,   -- when something happens by itself; 0: never
  created_at      BIGINT NOT NULL,
  finalized_at    BIGINT NOT NULL,
  due_at          BIGINT NOT NULL,
  UNIQUE (subscription_id, cause)
);
CREATE INDEX billing_invoices_owner ON billing_invoices (owner_id, id);
CREATE UNIQUE INDEX billing_invoices_number ON billing_invoices (seller_id, number) WHERE number <> '';
CREATE INDEX billing_invoices_next ON billing_invoices (next_at) WHERE next_at > 0;
CREATE INDEX billing_invoices_corrects ON billing_invoices (corrects) WHERE corrects <> '';

-- Written by package billing: the last number of each series of a seller and year.
CREATE TABLE billing_numbers (
  seller_id TEXT NOT NULL,
  series    TEXT NOT NULL,        -- '' for invoices, CN- for credit notes
  year      BIGINT NOT NULL,
  last      BIGINT NOT NULL,
  PRIMARY KEY (seller_id, series, year)
);

-- Written by package billing: payments, one for each attempt.
CREATE TABLE billing_payments (
  id              TEXT PRIMARY KEY,  -- pay_...
  owner_id        TEXT NOT NULL,
  invoice_id      TEXT NOT NULL,
  subscription_id TEXT NOT NULL,
  provider        TEXT NOT NULL,     -- manual
  attempt         BIGINT NOT NULL,   -- of the invoice
  amount          BIGINT NOT NULL,
  currency        TEXT NOT NULL,
  status          TEXT NOT NULL,     -- pending, processing, requires_action, unknown, completed or failed
  failure_code    TEXT NOT NULL,
  reference       TEXT NOT NULL,     -- of a transfer, so that none is recorded twice
  received_at     BIGINT NOT NULL,
  next_attempt_at BIGINT NOT NULL,
  created_at      BIGINT NOT NULL,
  UNIQUE (invoice_id, attempt)
);
CREATE UNIQUE INDEX billing_payments_open ON billing_payments (invoice_id)
  WHERE status IN ('pending', 'processing', 'requires_action', 'unknown');
CREATE UNIQUE INDEX billing_payments_reference ON billing_payments (provider, reference) WHERE reference <> '';
CREATE INDEX billing_payments_owner ON billing_payments (owner_id, id);

-- Written by package billing: the ledger. The rows of a transaction sum up to 0, and no row ever changes.
CREATE TABLE billing_ledger (
  txn_key    TEXT NOT NULL,
  account    TEXT NOT NULL,       -- receivable, revenue, tax, cash, credit, granted or write_off
  owner_id   TEXT NOT NULL,
  currency   TEXT NOT NULL,
  amount     BIGINT NOT NULL,
  invoice_id TEXT NOT NULL,
  reference  TEXT NOT NULL,
  at         BIGINT NOT NULL,
  PRIMARY KEY (txn_key, account)
);
CREATE INDEX billing_ledger_owner ON billing_ledger (owner_id, account);

-- Written by package billing: what has happened once, such as a renewal that webhooks were told of.
CREATE TABLE billing_events (
  occurrence TEXT PRIMARY KEY,
  at         BIGINT NOT NULL
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
  WHERE b.status = 'paused' AND s.deleted_at = 0;
