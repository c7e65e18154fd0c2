-- +goose Up

-- Written by package webhook: who wants to hear of what.
CREATE TABLE webhooks (
  id            TEXT PRIMARY KEY,
  owner_id      TEXT NOT NULL,
  url           TEXT NOT NULL,
  events        TEXT NOT NULL,             -- names separated by spaces
  secret        TEXT NOT NULL,             -- sealed
  generated     BOOLEAN NOT NULL,          -- the secret is ours, so the dashboard may reveal it
  prev_secret   TEXT NOT NULL DEFAULT '',  -- sealed; signs beside the newer one until prev_until
  prev_until    BIGINT NOT NULL DEFAULT 0,
  active        BOOLEAN NOT NULL,
  reason        TEXT NOT NULL,             -- why it was turned off: empty (by its owner), gone
  failing_since BIGINT NOT NULL DEFAULT 0, -- first failure after the last success; 0: none
  failures      BIGINT NOT NULL DEFAULT 0, -- attempts since the last success
  floor_at      BIGINT NOT NULL DEFAULT 0, -- nothing is claimed before: the last claim, or what Retry-After asked for
  turn_at       BIGINT NOT NULL,           -- when it is next served: claims go by this order, which is fair over endpoints
  created_at    BIGINT NOT NULL,
  updated_at    BIGINT NOT NULL,
  deleted_at    BIGINT NOT NULL DEFAULT 0  -- deleted ones go with their log, in batches
);
CREATE INDEX webhooks_owner ON webhooks (owner_id, id) WHERE deleted_at = 0;
CREATE INDEX webhooks_turn ON webhooks (turn_at, id) WHERE active AND deleted_at = 0;
CREATE INDEX webhooks_deleted ON webhooks (deleted_at) WHERE deleted_at > 0;

-- Written by package webhook: the frozen bytes of one occurrence under one name.
CREATE TABLE webhook_events (
  id         TEXT PRIMARY KEY,
  owner_id   TEXT NOT NULL,
  name       TEXT NOT NULL,
  body       TEXT NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX webhook_events_age ON webhook_events (created_at);

-- Written by package webhook: the queue, and afterwards the log.
CREATE TABLE webhook_deliveries (
  id          TEXT PRIMARY KEY,
  event_id    TEXT NOT NULL,
  hook_id     TEXT NOT NULL,
  state       TEXT NOT NULL,             -- pending, leased, succeeded, failed, skipped
  claims      BIGINT NOT NULL,           -- times taken up: the fencing token
  failures    BIGINT NOT NULL,           -- attempts that failed
  next_at     BIGINT NOT NULL,
  lease_until BIGINT NOT NULL,
  created_at  BIGINT NOT NULL,
  finished_at BIGINT NOT NULL,
  UNIQUE (event_id, hook_id)
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (hook_id, next_at, id) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_leased ON webhook_deliveries (hook_id, lease_until) WHERE state = 'leased';
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (hook_id, id);
CREATE INDEX webhook_deliveries_age ON webhook_deliveries (finished_at) WHERE finished_at > 0;

-- Written by package webhook: every request made, and what came back.
CREATE TABLE webhook_attempts (
  delivery_id TEXT NOT NULL,
  n           BIGINT NOT NULL,           -- the claim that made it
  started_at  BIGINT NOT NULL,
  duration    BIGINT NOT NULL,           -- milliseconds
  status      BIGINT NOT NULL,           -- of the answer; 0: none came
  error       TEXT NOT NULL,             -- a word of ours; empty: none
  answer      TEXT NOT NULL,             -- first 4 KiB of the answer's body
  late        BOOLEAN NOT NULL,          -- another worker had taken the delivery over
  PRIMARY KEY (delivery_id, n)
);
