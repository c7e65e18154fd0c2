-- +goose Up

ALTER TABLE webhooks ADD COLUMN host TEXT NOT NULL DEFAULT '';          -- host:port of the URL; empty: not worked out yet
ALTER TABLE webhooks ADD COLUMN url_key TEXT NOT NULL DEFAULT '';       -- the URL that is taken by this row; empty: deleted, or older than this column
ALTER TABLE webhooks ADD COLUMN site_ids TEXT NOT NULL DEFAULT '';      -- ids separated by spaces; empty: all sites
ALTER TABLE webhooks ADD COLUMN succeeded_at BIGINT NOT NULL DEFAULT 0; -- last success that changed anything here; 0: never
ALTER TABLE webhooks ADD COLUMN timeouts BIGINT NOT NULL DEFAULT 0;     -- attempts in a row that found no connection or no answer
ALTER TABLE webhooks ADD COLUMN warned_at BIGINT NOT NULL DEFAULT 0;    -- when its owner was told that it fails; 0: not yet
ALTER TABLE webhooks ADD COLUMN expires_at BIGINT NOT NULL DEFAULT 0;   -- of a listener, which has no URL: deleted then
CREATE UNIQUE INDEX webhooks_url ON webhooks (owner_id, url_key) WHERE url_key <> '';
CREATE INDEX webhooks_failing ON webhooks (failing_since) WHERE failing_since > 0;

ALTER TABLE webhook_events ADD COLUMN site_id TEXT NOT NULL DEFAULT '';
ALTER TABLE webhook_events ADD COLUMN hops BIGINT NOT NULL DEFAULT 0;   -- webhooks and deploy hooks that led to it

ALTER TABLE webhook_attempts ADD COLUMN request TEXT NOT NULL DEFAULT '';  -- head of the request
ALTER TABLE webhook_attempts ADD COLUMN response TEXT NOT NULL DEFAULT ''; -- first 4 KiB of the answer's head

-- An event may be delivered to one webhook more than once: redeliveries are rows of their own.
-- Written by package webhook: the queue, and afterwards the log. It takes the name webhook_deliveries below.
CREATE TABLE webhook_deliveries_new (
  id            TEXT PRIMARY KEY,
  event_id      TEXT NOT NULL,
  hook_id       TEXT NOT NULL,
  state         TEXT NOT NULL,             -- pending, leased, succeeded, failed, skipped
  claims        BIGINT NOT NULL,           -- times taken up: the fencing token
  failures      BIGINT NOT NULL,           -- attempts that failed
  next_at       BIGINT NOT NULL,
  lease_until   BIGINT NOT NULL,
  created_at    BIGINT NOT NULL,
  finished_at   BIGINT NOT NULL,
  redelivery_of TEXT NOT NULL              -- the delivery that this one repeats; empty: none
);
INSERT INTO webhook_deliveries_new (id, event_id, hook_id, state, claims, failures, next_at, lease_until, created_at, finished_at, redelivery_of)
  SELECT id, event_id, hook_id, state, claims, failures, next_at, lease_until, created_at, finished_at, '' FROM webhook_deliveries;
DROP TABLE webhook_deliveries;
ALTER TABLE webhook_deliveries_new RENAME TO webhook_deliveries;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (hook_id, next_at, id) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_leased ON webhook_deliveries (hook_id, lease_until) WHERE state = 'leased';
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (hook_id, id);
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (hook_id, id) WHERE state IN ('failed', 'skipped');
CREATE INDEX webhook_deliveries_age ON webhook_deliveries (finished_at) WHERE finished_at > 0;
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_id);

-- Written by package webhook: attempts per webhook and hour, for plots.
CREATE TABLE webhook_hours (
  hook_id   TEXT NOT NULL,
  hour      BIGINT NOT NULL, -- Unix time / 3600
  succeeded BIGINT NOT NULL,
  failed    BIGINT NOT NULL,
  PRIMARY KEY (hook_id, hour)
);
