-- version 317
CREATE TABLE jobs (
  id          TEXT PRIMARY KEY,
  kind        TEXT NOT NULL,
  queue       TEXT NOT NULL,
  args        TEXT NOT NULL,
  uniq        TEXT,             -- at most one unfinished job has it
  grp         TEXT,             -- at most one job of it runs at a time, in order
  share       TEXT NOT NULL,    -- whose turn it is: claimed fairly over shares
  state       TEXT NOT NULL,    -- ready, running, dead
  attempt     BIGINT NOT NULL,  -- times claimed: the fencing token of its worker
  failures    BIGINT NOT NULL,  -- times it ended in an error or was interrupted by a crash
  run_at      BIGINT NOT NULL,
  lease_until BIGINT NOT NULL,
  canceled    BOOLEAN NOT NULL, -- asked to stop
  error       TEXT NOT NULL,
  created_at  BIGINT NOT NULL
, node TEXT NOT NULL DEFAULT '');
CREATE UNIQUE INDEX jobs_uniq ON jobs (uniq) WHERE uniq IS NOT NULL AND state IN ('ready', 'running');
CREATE UNIQUE INDEX jobs_one_running ON jobs (grp) WHERE grp IS NOT NULL AND state = 'running';
CREATE INDEX jobs_group ON jobs (grp, id) WHERE grp IS NOT NULL;
CREATE INDEX jobs_running ON jobs (queue, lease_until) WHERE state = 'running';
CREATE TABLE users (
  id         TEXT PRIMARY KEY,
  email      TEXT NOT NULL UNIQUE,  -- lower case
  password   TEXT NOT NULL,         -- argon2id in PHC form; empty: none set yet
  admin      BOOLEAN NOT NULL,
  created_at BIGINT NOT NULL
, suspended_at BIGINT NOT NULL DEFAULT 0, suspended_why TEXT NOT NULL DEFAULT '', owner_id TEXT NOT NULL DEFAULT '');
CREATE TABLE setup_links (
  hash       TEXT PRIMARY KEY,                -- SHA-256 of the token, hex
  user_id    TEXT REFERENCES users (id),      -- whose password it sets; NULL: makes the first admin
  expires_at BIGINT NOT NULL
, mailed BOOLEAN NOT NULL DEFAULT FALSE);
CREATE INDEX setup_links_user ON setup_links (user_id);
CREATE TABLE api_keys (
  id         TEXT PRIMARY KEY,
  user_id   TEXT NOT NULL REFERENCES users (id),
  hash       TEXT NOT NULL UNIQUE,  -- SHA-256 of the secret, hex
  hint       TEXT NOT NULL,         -- the secret's first characters, to tell keys apart
  name       TEXT NOT NULL,
  scopes     TEXT NOT NULL,         -- separated by spaces
  sites      TEXT NOT NULL,         -- ids separated by spaces; empty: all
  nets       TEXT NOT NULL,         -- CIDRs separated by spaces; empty: anywhere
  expires_at BIGINT NOT NULL,       -- 0: never
  created_at BIGINT NOT NULL,
  used_at    BIGINT NOT NULL,
  used_addr  TEXT NOT NULL
, owner_id TEXT NOT NULL DEFAULT '', kind TEXT NOT NULL DEFAULT 'user', provider_id TEXT NOT NULL DEFAULT '');
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
, host TEXT NOT NULL DEFAULT '', url_key TEXT NOT NULL DEFAULT '', site_ids TEXT NOT NULL DEFAULT '', succeeded_at BIGINT NOT NULL DEFAULT 0, timeouts BIGINT NOT NULL DEFAULT 0, warned_at BIGINT NOT NULL DEFAULT 0, expires_at BIGINT NOT NULL DEFAULT 0);
CREATE INDEX webhooks_owner ON webhooks (owner_id, id) WHERE deleted_at = 0;
CREATE INDEX webhooks_turn ON webhooks (turn_at, id) WHERE active AND deleted_at = 0;
CREATE INDEX webhooks_deleted ON webhooks (deleted_at) WHERE deleted_at > 0;
CREATE TABLE webhook_events (
  id         TEXT PRIMARY KEY,
  owner_id   TEXT NOT NULL,
  name       TEXT NOT NULL,
  body       TEXT NOT NULL,
  created_at BIGINT NOT NULL
, site_id TEXT NOT NULL DEFAULT '', hops BIGINT NOT NULL DEFAULT 0);
CREATE INDEX webhook_events_age ON webhook_events (created_at);
CREATE TABLE webhook_attempts (
  delivery_id TEXT NOT NULL,
  n           BIGINT NOT NULL,           -- the claim that made it
  started_at  BIGINT NOT NULL,
  duration    BIGINT NOT NULL,           -- milliseconds
  status      BIGINT NOT NULL,           -- of the answer; 0: none came
  error       TEXT NOT NULL,             -- a word of ours; empty: none
  answer      TEXT NOT NULL,             -- first 4 KiB of the answer's body
  late        BOOLEAN NOT NULL, request TEXT NOT NULL DEFAULT '', response TEXT NOT NULL DEFAULT '',          -- another worker had taken the delivery over
  PRIMARY KEY (delivery_id, n)
);
CREATE TABLE sites (
  id              TEXT PRIMARY KEY,
  owner_id        TEXT NOT NULL,
  name            TEXT NOT NULL,
  slug            TEXT NOT NULL,
  type            TEXT NOT NULL,             -- static, wordpress
  runtime         TEXT NOT NULL,             -- static, node, php, wordpress
  status          TEXT NOT NULL,             -- pending, provisioning, active, error, stopped
  status_reason   TEXT NOT NULL,
  repository      TEXT NOT NULL,             -- host/owner/repo, or empty
  branch          TEXT NOT NULL,             -- empty: the repository's default branch
  framework       TEXT NOT NULL,             -- as asked for, or empty
  build           TEXT NOT NULL,             -- JSON: the owner's own build settings
  credential      TEXT NOT NULL,             -- sealed JSON for fetching the repository, or empty
  needs_redeploy  BOOLEAN NOT NULL,          -- env or settings changed since the live release
  live_deployment TEXT NOT NULL,             -- empty until the first release is live
  live_release    TEXT NOT NULL,
  live_version    BIGINT NOT NULL,           -- grows with every change that the edge must see
  created_at      BIGINT NOT NULL,
  updated_at      BIGINT NOT NULL,
  deleted_at      BIGINT NOT NULL            -- 0: exists
, search TEXT NOT NULL DEFAULT '', run TEXT NOT NULL DEFAULT '{}', tags TEXT NOT NULL DEFAULT '');
CREATE INDEX sites_of_owner ON sites (owner_id, created_at DESC, id DESC) WHERE deleted_at = 0;
CREATE INDEX sites_live ON sites (live_version);
CREATE TABLE site_counts (
  owner_id TEXT NOT NULL,
  type     TEXT NOT NULL,
  status   TEXT NOT NULL,
  n        BIGINT NOT NULL,
  PRIMARY KEY (owner_id, type, status)
);
CREATE TABLE slugs (
  slug        TEXT PRIMARY KEY,
  owner_id    TEXT NOT NULL,
  site_id     TEXT NOT NULL,                 -- empty: released
  released_at BIGINT NOT NULL
);
CREATE TABLE deploy_hooks (
  digest            TEXT PRIMARY KEY,        -- SHA-256 of the id
  sealed            TEXT NOT NULL,
  site_id           TEXT NOT NULL,
  owner_id          TEXT NOT NULL,
  name              TEXT NOT NULL,
  branch            TEXT NOT NULL,           -- empty: the site's branch
  any_branch        BOOLEAN NOT NULL,        -- callers may name another
  active            BOOLEAN NOT NULL,
  triggered_at      BIGINT NOT NULL,
  triggered         BIGINT NOT NULL,
  last_deployment   TEXT NOT NULL,
  created_at        BIGINT NOT NULL
, title TEXT NOT NULL DEFAULT '', clear_cache BOOLEAN NOT NULL DEFAULT FALSE, secret TEXT NOT NULL DEFAULT '', addresses TEXT NOT NULL DEFAULT '', expires_at BIGINT NOT NULL DEFAULT 0, per_minute BIGINT NOT NULL DEFAULT 0, per_day BIGINT NOT NULL DEFAULT 0, minute_at BIGINT NOT NULL DEFAULT 0, minute_calls BIGINT NOT NULL DEFAULT 0, day_at BIGINT NOT NULL DEFAULT 0, day_calls BIGINT NOT NULL DEFAULT 0);
CREATE INDEX deploy_hooks_of_site ON deploy_hooks (site_id, created_at);
CREATE TABLE live_version (
  id BIGINT PRIMARY KEY,
  n  BIGINT NOT NULL
);
CREATE VIEW open_sites AS
  SELECT id, owner_id, name, slug AS subdomain, type, status, live_deployment, live_release
  FROM sites WHERE deleted_at = 0;
CREATE TABLE deployments (
  id             TEXT PRIMARY KEY,
  site_id        TEXT NOT NULL,
  owner_id       TEXT NOT NULL,
  label          TEXT NOT NULL,     -- the last 12 characters of the id, in its own address
  status         TEXT NOT NULL,     -- pending, building, deploying, success, failed, canceled
  cause          TEXT NOT NULL,     -- provision, api, hook, dashboard, push, rollback
  branch         TEXT NOT NULL,
  title          TEXT NOT NULL,
  clear_cache    BOOLEAN NOT NULL,
  commit_hash    TEXT NOT NULL,
  commit_message TEXT NOT NULL,
  commit_author  TEXT NOT NULL,
  framework      TEXT NOT NULL,
  plan           TEXT NOT NULL,     -- JSON: what was done and why
  release        TEXT NOT NULL,     -- empty: none yet, or no longer kept
  runtime        TEXT NOT NULL,
  rollback_of    TEXT NOT NULL,
  error          TEXT NOT NULL,
  stages         TEXT NOT NULL,     -- JSON
  attempt        BIGINT NOT NULL,   -- the fencing token of the worker that runs it
  cancel         TEXT NOT NULL,     -- why it was asked to stop, or empty
  created_at     BIGINT NOT NULL,
  started_at     BIGINT NOT NULL,
  completed_at   BIGINT NOT NULL
, target TEXT NOT NULL DEFAULT 'production', pinned BOOLEAN NOT NULL DEFAULT FALSE, preview_label TEXT NOT NULL DEFAULT '', crashes BIGINT NOT NULL DEFAULT 0, hops BIGINT NOT NULL DEFAULT 0, hook_body TEXT NOT NULL DEFAULT '', place BIGINT NOT NULL DEFAULT 0, bundle TEXT NOT NULL DEFAULT '', stored_bytes BIGINT NOT NULL DEFAULT 0, added_bytes BIGINT NOT NULL DEFAULT 0, released_at BIGINT NOT NULL DEFAULT 0, pull_request BIGINT NOT NULL DEFAULT 0, fork BOOLEAN NOT NULL DEFAULT FALSE, repository TEXT NOT NULL DEFAULT '', source TEXT NOT NULL DEFAULT '', upload_id TEXT NOT NULL DEFAULT '', limited_env BOOLEAN NOT NULL DEFAULT FALSE);
CREATE INDEX deployments_of_site ON deployments (site_id, id DESC);
CREATE INDEX deployments_open ON deployments (site_id, status) WHERE status IN ('pending', 'building', 'deploying');
CREATE INDEX deployments_label ON deployments (label);
CREATE TABLE deployment_logs (
  deployment_id TEXT NOT NULL,
  n             BIGINT NOT NULL,    -- from 1, without gaps
  at            BIGINT NOT NULL,
  level         TEXT NOT NULL,      -- debug, info, warn, error
  stage         TEXT NOT NULL,
  message       TEXT NOT NULL,
  raw           TEXT NOT NULL,      -- with terminal colours, or empty when there are none
  PRIMARY KEY (deployment_id, n)
);
CREATE TABLE build_uids (
  uid         BIGINT PRIMARY KEY,
  site_id     TEXT NOT NULL UNIQUE,
  released_at BIGINT NOT NULL     -- 0: in use
, used_at BIGINT NOT NULL DEFAULT 0, has_files BOOLEAN NOT NULL DEFAULT FALSE);
CREATE TABLE domains (
  id              TEXT PRIMARY KEY,
  owner_id        TEXT NOT NULL,
  site_id         TEXT NOT NULL,
  name            TEXT NOT NULL,              -- A-labels, lower case; "*." in front of a wildcard
  zone            TEXT NOT NULL,              -- the registrable name it lies in
  status          TEXT NOT NULL,              -- pending, active, failed
  reason          TEXT NOT NULL,              -- why it is not active, in words
  is_primary      BOOLEAN NOT NULL,
  redirect_to     TEXT NOT NULL,              -- '' when it serves the site itself
  proof           TEXT NOT NULL,              -- '', txt, cname: what proved it last
  proven_at       BIGINT NOT NULL DEFAULT 0,  -- since when the owner holds the name
  astray_at       BIGINT NOT NULL DEFAULT 0,  -- since when an active name points elsewhere
  findings        TEXT NOT NULL,              -- what the last check saw, JSON
  checks          BIGINT NOT NULL,            -- times claimed for a check; also the fencing token
  tries           BIGINT NOT NULL,            -- checks since the last good news: the back-off
  pending_at      BIGINT NOT NULL,            -- since when the current attempt to become active runs
  checked_at      BIGINT NOT NULL DEFAULT 0,
  next_check_at   BIGINT NOT NULL DEFAULT 0,
  lease_until     BIGINT NOT NULL DEFAULT 0,
  ssl_status      TEXT NOT NULL,              -- pending, active, failed, expired
  cert_issuer     TEXT NOT NULL,
  cert_not_before BIGINT NOT NULL DEFAULT 0,
  cert_expires_at BIGINT NOT NULL DEFAULT 0,
  cert_error      TEXT NOT NULL,
  cert_next_at    BIGINT NOT NULL DEFAULT 0,
  created_at      BIGINT NOT NULL,
  updated_at      BIGINT NOT NULL
, delegated BOOLEAN NOT NULL DEFAULT TRUE, redirect_lost_at BIGINT NOT NULL DEFAULT 0, proof_token TEXT NOT NULL DEFAULT '');
CREATE UNIQUE INDEX domains_claim ON domains (owner_id, name);
CREATE UNIQUE INDEX domains_held ON domains (name) WHERE proven_at <> 0;
CREATE INDEX domains_site ON domains (site_id, name);
CREATE INDEX domains_zone ON domains (zone);
CREATE INDEX domains_name ON domains (name);
CREATE INDEX domains_due ON domains (next_check_at) WHERE next_check_at <> 0;
CREATE TABLE domain_tokens (
  owner_id TEXT PRIMARY KEY,
  token    TEXT NOT NULL
);
CREATE TABLE domain_releases (
  name        TEXT NOT NULL,
  owner_id    TEXT NOT NULL,
  lost        BOOLEAN NOT NULL, -- taken over with proof by somebody else, not given up
  released_at BIGINT NOT NULL,
  PRIMARY KEY (name, owner_id)
);
CREATE TABLE domain_routes (
  host        TEXT PRIMARY KEY,
  site_id     TEXT NOT NULL,
  redirect_to TEXT NOT NULL,
  state       TEXT NOT NULL,   -- active, deleted
  version     BIGINT NOT NULL, -- of live_version
  changed_at  BIGINT NOT NULL
);
CREATE INDEX domain_routes_version ON domain_routes (version);
CREATE TABLE rdap_bootstrap (
  id         BIGINT PRIMARY KEY,
  body       TEXT NOT NULL,
  fetched_at BIGINT NOT NULL
);
CREATE TABLE authority (
  id          TEXT PRIMARY KEY, -- 'local': the one that signs for the sites of this installation
  certificate TEXT NOT NULL,    -- PEM
  private_key TEXT NOT NULL,    -- PKCS #8, sealed
  created_at  BIGINT NOT NULL
);
CREATE TABLE rate_windows (
  key     TEXT PRIMARY KEY,
  n       BIGINT NOT NULL,  -- requests in this window, refused ones included
  ends_at BIGINT NOT NULL
);
CREATE INDEX rate_windows_ends ON rate_windows (ends_at);
CREATE TABLE idempotent_answers (
  scope       TEXT NOT NULL,    -- whose key it is: a user or a deploy hook
  method      TEXT NOT NULL,
  path        TEXT NOT NULL,
  key         TEXT NOT NULL,
  fingerprint TEXT NOT NULL,    -- SHA-256 of the request, hex
  answer      TEXT NOT NULL,    -- sealed
  created_at  BIGINT NOT NULL, owner_id TEXT NOT NULL DEFAULT '', size BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, method, path, key)
);
CREATE INDEX idempotent_answers_created ON idempotent_answers (created_at);
CREATE TABLE sessions (
  hash       TEXT PRIMARY KEY,                      -- SHA-256 of the cookie's token, hex
  id         TEXT NOT NULL UNIQUE,                  -- what lists and logs call it
  user_id    TEXT NOT NULL REFERENCES users (id),
  method     TEXT NOT NULL,                         -- setup, password, totp, recovery, passkey
  pending    BOOLEAN NOT NULL,                      -- the password was right, the second factor is still owed
  agent      TEXT NOT NULL,
  addr       TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  proven_at  BIGINT NOT NULL,                       -- when its holder last proved who they are
  seen_at    BIGINT NOT NULL,
  expires_at BIGINT NOT NULL                        -- whatever happens
, provider_id TEXT NOT NULL DEFAULT '', passkey_id TEXT NOT NULL DEFAULT '');
CREATE INDEX sessions_user ON sessions (user_id, seen_at);
CREATE INDEX sessions_end ON sessions (expires_at);
CREATE TABLE second_factors (
  user_id    TEXT PRIMARY KEY REFERENCES users (id),
  secret     TEXT NOT NULL,                         -- sealed
  confirmed  BOOLEAN NOT NULL,                      -- false: offered, not yet proven to work
  last_step  BIGINT NOT NULL,                       -- the newest step a code was used of: none works twice
  created_at BIGINT NOT NULL
);
CREATE TABLE recovery_codes (
  hash       TEXT PRIMARY KEY,                      -- SHA-256 of user and code, hex
  user_id    TEXT NOT NULL REFERENCES users (id),
  created_at BIGINT NOT NULL
);
CREATE INDEX recovery_codes_user ON recovery_codes (user_id);
CREATE TABLE passkeys (
  id         TEXT PRIMARY KEY,
  user_id    TEXT NOT NULL REFERENCES users (id),
  credential TEXT NOT NULL UNIQUE,                  -- the authenticator's id of it, base64url
  record     TEXT NOT NULL,                         -- JSON: public key, counters, flags
  name       TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  used_at    BIGINT NOT NULL                        -- 0: never
);
CREATE INDEX passkeys_user ON passkeys (user_id);
CREATE TABLE ceremonies (
  hash       TEXT PRIMARY KEY,                      -- SHA-256 of the token that finishes it, hex
  user_id    TEXT NOT NULL,                         -- empty: somebody who is not signed in
  record     TEXT NOT NULL,                         -- JSON: the challenge and what was asked for
  expires_at BIGINT NOT NULL
);
CREATE INDEX ceremonies_end ON ceremonies (expires_at);
CREATE TABLE audit (
  id         TEXT PRIMARY KEY,                      -- sorts by time
  at         BIGINT NOT NULL,
  user_id    TEXT NOT NULL,                         -- who did it
  about      TEXT NOT NULL,                         -- the other user it concerns, or empty
  key_id     TEXT NOT NULL,                         -- empty: not by a key
  session_id TEXT NOT NULL,                         -- empty: not by a session
  addr       TEXT NOT NULL,
  action     TEXT NOT NULL,                         -- noun.verb
  subject    TEXT NOT NULL,                         -- the id of what it was done to, or empty
  detail     TEXT NOT NULL                          -- in words, never a secret
, via TEXT NOT NULL DEFAULT '', owner_id TEXT NOT NULL DEFAULT '', grant_id TEXT NOT NULL DEFAULT '', app_id TEXT NOT NULL DEFAULT '');
CREATE INDEX audit_user ON audit (user_id, id);
CREATE INDEX audit_about ON audit (about, id) WHERE about <> '';
CREATE INDEX audit_at ON audit (at);
CREATE VIEW custom_hosts AS
  SELECT r.host, r.site_id, r.redirect_to, r.state, r.version,
         COALESCE(CASE WHEN d.ssl_status = 'active' THEN d.cert_expires_at END, 0) AS certified_until
  FROM domain_routes r LEFT JOIN domains d ON d.name = r.host AND d.proven_at <> 0;
CREATE TABLE certificates (
  host        TEXT PRIMARY KEY,           -- A-labels, lower case; "*." in front of a wildcard
  kind        TEXT NOT NULL,              -- custom, site, control: why it should have one
  route       BIGINT NOT NULL DEFAULT 0,  -- version of the custom host's row that was seen last
  state       TEXT NOT NULL,              -- pending, active, failed, gone
  material    TEXT NOT NULL DEFAULT '',   -- prefix in acme_storage, '' while there is no certificate
  issuer      TEXT NOT NULL DEFAULT '',
  not_before  BIGINT NOT NULL DEFAULT 0,
  not_after   BIGINT NOT NULL DEFAULT 0,
  attempts    BIGINT NOT NULL DEFAULT 0,  -- times claimed for an order; also the fencing token
  failures    BIGINT NOT NULL DEFAULT 0,  -- attempts that failed since the last success
  error       TEXT NOT NULL DEFAULT '',   -- why the last one failed, in words
  next_at     BIGINT NOT NULL DEFAULT 0,  -- 0: nothing to do
  lease_until BIGINT NOT NULL DEFAULT 0,
  told_at     BIGINT NOT NULL DEFAULT 0,  -- when ssl.failed was told last
  warned      BIGINT NOT NULL DEFAULT 0,  -- days before the end that were warned of: 21, 14, 7
  version     BIGINT NOT NULL,            -- of certificate_version
  changed_at  BIGINT NOT NULL
, owner_id TEXT NOT NULL DEFAULT '');
CREATE INDEX certificates_due ON certificates (next_at) WHERE next_at <> 0;
CREATE INDEX certificates_version ON certificates (version);
CREATE TABLE certificate_version (
  id BIGINT PRIMARY KEY,
  n  BIGINT NOT NULL
);
CREATE TABLE acme_storage (
  key      TEXT PRIMARY KEY,
  value    TEXT NOT NULL,   -- sealed
  size     BIGINT NOT NULL, -- of what was sealed
  modified BIGINT NOT NULL
);
CREATE TABLE acme_locks (
  name   TEXT PRIMARY KEY,
  holder TEXT NOT NULL,
  until  BIGINT NOT NULL
);
CREATE TABLE acme_challenges (
  token    TEXT PRIMARY KEY,
  host     TEXT NOT NULL,
  kind     TEXT NOT NULL, -- http-01, tls-alpn-01, dns-01
  answer   TEXT NOT NULL, -- the key authorization (RFC 8555, section 8.1)
  until    BIGINT NOT NULL
);
CREATE INDEX acme_challenges_host ON acme_challenges (host);
CREATE TABLE acme_ledger (
  id    TEXT PRIMARY KEY,
  ca    TEXT NOT NULL,
  host  TEXT NOT NULL,
  zone  TEXT NOT NULL,  -- the registrable domain
  kind  TEXT NOT NULL,  -- invalid: a failed validation; issued; renewed
  at    BIGINT NOT NULL
, owner_id TEXT NOT NULL DEFAULT '', class TEXT NOT NULL DEFAULT '');
CREATE INDEX acme_ledger_host ON acme_ledger (host, ca, at);
CREATE INDEX acme_ledger_zone ON acme_ledger (zone, ca, at) WHERE kind = 'issued';
CREATE INDEX acme_ledger_at ON acme_ledger (at);
CREATE INDEX audit_key ON audit (key_id, id) WHERE key_id <> '';
CREATE TABLE traffic (
  site_id       TEXT NOT NULL,
  span          BIGINT NOT NULL,  -- milliseconds: 300000, 3600000 or 86400000
  at            BIGINT NOT NULL,  -- when it begins, a multiple of span
  ok            BIGINT NOT NULL,  -- answers with a status 2xx
  redirected    BIGINT NOT NULL,  -- 3xx
  client_errors BIGINT NOT NULL,  -- 4xx
  server_errors BIGINT NOT NULL,  -- 5xx
  pages         BIGINT NOT NULL,  -- those of the answers that brought an HTML page
  bytes         BIGINT NOT NULL,  -- of bodies, as they were sent
  PRIMARY KEY (site_id, span, at)
);
CREATE INDEX traffic_at ON traffic (span, at);
CREATE TABLE "thumbnails" (
  release TEXT PRIMARY KEY,
  title   TEXT NOT NULL,
  text    TEXT NOT NULL,
  color  TEXT NOT NULL,  -- #rrggbb, or empty
  icon    TEXT NOT NULL,  -- a PNG of our own making in base64, or empty
  image   TEXT NOT NULL,  -- a JPEG of our own making in base64, or empty
  made_at BIGINT NOT NULL
);
CREATE INDEX sites_of_status ON sites (owner_id, status, created_at DESC, id DESC) WHERE deleted_at = 0;
CREATE INDEX sites_of_type ON sites (owner_id, type, created_at DESC, id DESC) WHERE deleted_at = 0;
CREATE VIEW site_domains AS
  SELECT owner_id, site_id, name FROM domains;
CREATE TABLE owners (
  id         TEXT PRIMARY KEY,
  kind       TEXT NOT NULL,    -- personal
  created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX users_owner ON users (owner_id);
CREATE INDEX api_keys_owner ON api_keys (owner_id, id);
CREATE INDEX api_keys_user ON api_keys (user_id);
CREATE INDEX audit_owner ON audit (owner_id, id) WHERE owner_id <> '';
CREATE TABLE preview_hosts (
  site_id       TEXT NOT NULL,
  branch        TEXT NOT NULL,
  label         TEXT NOT NULL,
  deployment_id TEXT NOT NULL,     -- empty: none has succeeded yet
  release       TEXT NOT NULL,
  used_at       BIGINT NOT NULL,   -- when a deployment was last asked for
  PRIMARY KEY (site_id, branch),
  UNIQUE (site_id, label)
);
CREATE TABLE site_serving (
  site_id  TEXT PRIMARY KEY,
  settings TEXT NOT NULL -- JSON: hosts that rules may forward to, who must give which password (hashed)
);
CREATE VIEW serving AS
  SELECT site_id, settings FROM site_serving;
CREATE UNIQUE INDEX webhooks_url ON webhooks (owner_id, url_key) WHERE url_key <> '';
CREATE INDEX webhooks_failing ON webhooks (failing_since) WHERE failing_since > 0;
CREATE TABLE "webhook_deliveries" (
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
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (hook_id, next_at, id) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_leased ON webhook_deliveries (hook_id, lease_until) WHERE state = 'leased';
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (hook_id, id);
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (hook_id, id) WHERE state IN ('failed', 'skipped');
CREATE INDEX webhook_deliveries_age ON webhook_deliveries (finished_at) WHERE finished_at > 0;
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_id);
CREATE TABLE webhook_hours (
  hook_id   TEXT NOT NULL,
  hour      BIGINT NOT NULL, -- Unix time / 3600
  succeeded BIGINT NOT NULL,
  failed    BIGINT NOT NULL,
  PRIMARY KEY (hook_id, hour)
);
CREATE TABLE operations (
  id           TEXT PRIMARY KEY,
  owner_id     TEXT NOT NULL,
  site_id      TEXT NOT NULL,   -- empty: it concerns no site, or several
  kind         TEXT NOT NULL,
  uniq         TEXT NOT NULL,   -- at most one open operation has it; empty: any number
  status       TEXT NOT NULL,   -- pending, running, success, failed, canceled
  progress     BIGINT NOT NULL, -- thousandths; -1: unknown
  step         TEXT NOT NULL,   -- where the worker goes on after a crash; its own words
  message      TEXT NOT NULL,
  error        TEXT NOT NULL,
  result       TEXT NOT NULL,   -- JSON, or empty
  created_at   BIGINT NOT NULL,
  completed_at BIGINT NOT NULL
);
CREATE INDEX operations_site ON operations (site_id, id);
CREATE INDEX operations_age ON operations (completed_at) WHERE completed_at > 0;
CREATE UNIQUE INDEX operations_uniq ON operations (uniq) WHERE uniq <> '' AND completed_at = 0;
CREATE INDEX build_uids_used ON build_uids (used_at);
CREATE INDEX idempotent_answers_owner ON idempotent_answers (owner_id, created_at);
CREATE INDEX idempotent_answers_large ON idempotent_answers (owner_id, created_at) WHERE size > 0;
CREATE TABLE idempotency_usage (
  owner_id TEXT PRIMARY KEY,
  answers  BIGINT NOT NULL,
  bytes    BIGINT NOT NULL
);
CREATE TABLE totp_offers (
  hash       TEXT PRIMARY KEY,      -- SHA-256 of the offer's token, hex
  user_id    TEXT NOT NULL,
  session_id TEXT NOT NULL,
  secret     TEXT NOT NULL,         -- sealed
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX totp_offers_session ON totp_offers (session_id, created_at);
CREATE INDEX totp_offers_end ON totp_offers (expires_at);
CREATE TABLE site_starts (
  owner_id TEXT NOT NULL,
  day      BIGINT NOT NULL,    -- since 1970, UTC
  n        BIGINT NOT NULL,
  PRIMARY KEY (owner_id, day)
);
CREATE INDEX deployments_pending_of_owner ON deployments (owner_id) WHERE status = 'pending';
CREATE VIEW domain_holders AS
  SELECT name AS host, owner_id, delegated FROM domains WHERE proven_at <> 0;
CREATE INDEX certificates_leased ON certificates (lease_until) WHERE lease_until <> 0;
CREATE INDEX certificates_gone ON certificates (owner_id, changed_at) WHERE state = 'gone';
CREATE TABLE job_kinds (
  node        TEXT NOT NULL,
  kind        TEXT NOT NULL,
  lease_until BIGINT NOT NULL, -- the node is alive until then at least
  PRIMARY KEY (node, kind)
);
CREATE TABLE blob_deletions (
  digest    TEXT NOT NULL,
  sweeper   TEXT NOT NULL,
  at        BIGINT NOT NULL,   -- when it began, or ended
  under_way BOOLEAN NOT NULL,
  PRIMARY KEY (digest, sweeper)
);
CREATE INDEX blob_deletions_at ON blob_deletions (at);
CREATE TABLE release_holds (
  release TEXT PRIMARY KEY,
  until   BIGINT NOT NULL
);
CREATE TABLE app_logs (
  site_id       TEXT NOT NULL,
  n             BIGINT NOT NULL,   -- grows with each line of a site
  at            BIGINT NOT NULL,
  level         TEXT NOT NULL,     -- debug, info, warn, error: guessed
  stream        TEXT NOT NULL,     -- stdout, stderr, system
  process       TEXT NOT NULL,
  deployment_id TEXT NOT NULL,
  message       TEXT NOT NULL,
  PRIMARY KEY (site_id, n)
);
CREATE TABLE git_settings (
  site_id       TEXT PRIMARY KEY,
  hook_digest   TEXT NOT NULL,     -- SHA-256 of the hook's id, which is a secret; empty: there is no hook
  hook_sealed   TEXT NOT NULL,     -- the id, for its owner's eyes
  secret        TEXT NOT NULL,     -- sealed: what the forge signs with
  auto_deploy   BOOLEAN NOT NULL,
  previews      TEXT NOT NULL,     -- off, branches, pull_requests, all
  watch         TEXT NOT NULL,     -- globs as JSON
  provider      TEXT NOT NULL,     -- of the last event; empty: none yet
  last_event    TEXT NOT NULL,     -- what it was and what came of it
  last_event_at BIGINT NOT NULL
, preview_days BIGINT NOT NULL DEFAULT 30, tags TEXT NOT NULL DEFAULT 'ignore', deleted_branches TEXT NOT NULL DEFAULT 'end', forks TEXT NOT NULL DEFAULT 'approval', poll_minutes BIGINT NOT NULL DEFAULT 0, poll_at BIGINT NOT NULL DEFAULT 0, poll_refs TEXT NOT NULL DEFAULT '', poll_error TEXT NOT NULL DEFAULT '', polled_at BIGINT NOT NULL DEFAULT 0, preview_database TEXT NOT NULL DEFAULT 'empty', actions_repository    TEXT NOT NULL DEFAULT '', actions_repository_id TEXT NOT NULL DEFAULT '', actions_branch        TEXT NOT NULL DEFAULT '', actions_environment   TEXT NOT NULL DEFAULT '', actions_by            TEXT NOT NULL DEFAULT '');
CREATE UNIQUE INDEX git_settings_hook ON git_settings (hook_digest) WHERE hook_digest <> '';
CREATE TABLE git_deliveries (
  site_id TEXT NOT NULL,
  digest  TEXT NOT NULL,           -- of the forge's name for the call, or of the body
  seq     TEXT NOT NULL,           -- sorts by time
  PRIMARY KEY (site_id, digest)
);
CREATE INDEX git_deliveries_seq ON git_deliveries (site_id, seq);
CREATE TABLE "env" (
  id         TEXT PRIMARY KEY,
  site_id    TEXT NOT NULL,
  key        TEXT NOT NULL,
  value      TEXT NOT NULL,
  secret     BOOLEAN NOT NULL,
  target     TEXT NOT NULL,      -- build, runtime, and production or preview where it is for one of them alone; separated by commas
  scope      TEXT NOT NULL,      -- production, preview; empty: both
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (site_id, key, scope)
);
CREATE TABLE build_time (
  owner_id TEXT NOT NULL,
  month    BIGINT NOT NULL,   -- 202611 is November 2026
  site_id  TEXT NOT NULL,
  ms       BIGINT NOT NULL,
  PRIMARY KEY (owner_id, month, site_id)
);
CREATE TABLE build_caches (
  site_id  TEXT NOT NULL,
  name     TEXT NOT NULL,     -- of the branch's folder
  owner_id TEXT NOT NULL,
  bytes    BIGINT NOT NULL,
  used_at  BIGINT NOT NULL,
  PRIMARY KEY (site_id, name)
);
CREATE INDEX build_caches_of_owner ON build_caches (owner_id, used_at);
CREATE TABLE bandwidth (
  owner_id TEXT NOT NULL,
  month    BIGINT NOT NULL,    -- 202611 is November 2026
  bytes    BIGINT NOT NULL,
  paused   BOOLEAN NOT NULL,   -- whether it is over the owner's limit
  PRIMARY KEY (owner_id, month)
);
CREATE INDEX deployments_stored ON deployments (owner_id, site_id, id, stored_bytes, added_bytes) WHERE stored_bytes > 0 AND release <> '';
CREATE TABLE app_tasks (
  site_id       TEXT NOT NULL,
  kind          TEXT NOT NULL,     -- worker, cron
  name          TEXT NOT NULL,
  deployment_id TEXT NOT NULL,
  owner_id      TEXT NOT NULL,
  schedule      TEXT NOT NULL,     -- of a cron
  command       TEXT NOT NULL,     -- JSON: argv, shell, dir
  next_at       BIGINT NOT NULL,   -- of a cron
  node          TEXT NOT NULL,     -- where a worker runs; empty: nowhere yet
  lease_until   BIGINT NOT NULL, last_at BIGINT NOT NULL DEFAULT 0, last_exit BIGINT NOT NULL DEFAULT -1,
  PRIMARY KEY (site_id, kind, name)
);
CREATE INDEX app_tasks_due ON app_tasks (kind, next_at);
CREATE TABLE app_declared (
  site_id       TEXT PRIMARY KEY,
  deployment_id TEXT NOT NULL
);
CREATE TABLE app_metrics (
  site_id  TEXT NOT NULL,
  step     BIGINT NOT NULL,        -- milliseconds: a minute or an hour
  at       BIGINT NOT NULL,
  s2 BIGINT NOT NULL, s3 BIGINT NOT NULL, s4 BIGINT NOT NULL, s5 BIGINT NOT NULL,
  wakes    BIGINT NOT NULL,
  restarts BIGINT NOT NULL,
  memory   BIGINT NOT NULL,        -- the most that was seen, bytes
  cpu      BIGINT NOT NULL,        -- milliseconds
  b0 BIGINT NOT NULL, b1 BIGINT NOT NULL, b2 BIGINT NOT NULL, b3 BIGINT NOT NULL, b4 BIGINT NOT NULL, b5 BIGINT NOT NULL, b6 BIGINT NOT NULL, b7 BIGINT NOT NULL,
  b8 BIGINT NOT NULL, b9 BIGINT NOT NULL, b10 BIGINT NOT NULL, b11 BIGINT NOT NULL, b12 BIGINT NOT NULL, b13 BIGINT NOT NULL, b14 BIGINT NOT NULL, b15 BIGINT NOT NULL, bytes BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (site_id, step, at)
);
CREATE INDEX app_metrics_age ON app_metrics (step, at);
CREATE TABLE databases (
  id          TEXT PRIMARY KEY,
  site_id     TEXT NOT NULL,
  owner_id    TEXT NOT NULL,
  engine      TEXT NOT NULL,       -- mariadb
  name        TEXT NOT NULL,       -- the owner's name for it, unique in the site
  place       BIGINT NOT NULL,     -- 0: its variables have no prefix; else they begin with its name
  schema_name TEXT NOT NULL,       -- on the server; the user has the same name
  password    TEXT NOT NULL,       -- sealed
  server      TEXT NOT NULL,       -- which server holds it; empty: none yet
  status      TEXT NOT NULL,       -- creating, active, error, deleting
  reason      TEXT NOT NULL,       -- why it is in error
  size_bytes  BIGINT NOT NULL,
  is_full     BOOLEAN NOT NULL,    -- over its limit: it can be read and emptied alone
  created_at  BIGINT NOT NULL
, preview TEXT NOT NULL DEFAULT '');
CREATE UNIQUE INDEX databases_schema ON databases (schema_name);
CREATE INDEX databases_owner ON databases (owner_id);
CREATE TABLE wordpress_sites (
  site_id           TEXT PRIMARY KEY,
  owner_id          TEXT NOT NULL,
  secret            TEXT NOT NULL,     -- sealed: what its salts are made of
  title             TEXT NOT NULL,
  admin_email       TEXT NOT NULL,
  admin_user        TEXT NOT NULL,
  locale            TEXT NOT NULL,
  database_id       TEXT NOT NULL,     -- empty: none yet
  installed         TEXT NOT NULL,     -- version that was installed; empty: not yet
  xmlrpc            BOOLEAN NOT NULL,
  debug             BOOLEAN NOT NULL,
  maintenance       BOOLEAN NOT NULL,
  memory_mib        BIGINT NOT NULL,   -- of one request
  upload_mib        BIGINT NOT NULL,
  execution_seconds BIGINT NOT NULL,
  next_cron         BIGINT NOT NULL,   -- when its events are to be run again; 0: now
  created_at        BIGINT NOT NULL
, table_prefix TEXT NOT NULL DEFAULT 'wp_', auto_update TEXT NOT NULL DEFAULT 'off', next_update BIGINT NOT NULL DEFAULT 0, purged_at BIGINT NOT NULL DEFAULT 0, object_cache BOOLEAN NOT NULL DEFAULT FALSE, revision BIGINT NOT NULL DEFAULT 0, origin TEXT NOT NULL DEFAULT '', facts TEXT NOT NULL DEFAULT '', facts_at BIGINT NOT NULL DEFAULT 0, synced_at BIGINT NOT NULL DEFAULT 0, auto_extensions BIGINT NOT NULL DEFAULT 0, cleared_at BIGINT NOT NULL DEFAULT 0, moved_at BIGINT NOT NULL DEFAULT 0, host TEXT NOT NULL DEFAULT '-', content_host TEXT NOT NULL DEFAULT '-', old_hosts TEXT NOT NULL DEFAULT '', root_files TEXT NOT NULL DEFAULT '', page_cache TEXT NOT NULL DEFAULT '', readdress_at BIGINT NOT NULL DEFAULT 0, readdress_wait BIGINT NOT NULL DEFAULT 0, network TEXT NOT NULL DEFAULT '');
CREATE INDEX wordpress_sites_cron ON wordpress_sites (next_cron);
CREATE TABLE wordpress_cores (
  id         TEXT PRIMARY KEY,         -- digest of the source and of the files that are added
  version    TEXT NOT NULL,
  bundle     TEXT NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE VIEW deployment_sites AS SELECT id, site_id FROM deployments;
CREATE TABLE backups (
  id           TEXT PRIMARY KEY,
  owner_id     TEXT NOT NULL,
  site_id      TEXT NOT NULL,
  site_name    TEXT NOT NULL,
  type         TEXT NOT NULL,     -- manual, scheduled, before_update, before_restore, before_delete
  status       TEXT NOT NULL,     -- pending, running, completed, failed
  includes     TEXT NOT NULL,     -- config,files,database: what was asked for
  note         TEXT NOT NULL,
  size_bytes   BIGINT NOT NULL,   -- of what it holds
  stored_bytes BIGINT NOT NULL,   -- that it added
  progress     BIGINT NOT NULL,   -- bytes read so far
  manifest     TEXT NOT NULL,     -- object that lists it; empty until completed
  checksum     TEXT NOT NULL,
  base         TEXT NOT NULL,     -- manifests whose objects a running one uses again, with commas
  then_delete  TEXT NOT NULL,     -- operation that deletes the site once it is completed; empty: none
  verified_at  BIGINT NOT NULL,
  error        TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  completed_at BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL    -- 0: never
, answer TEXT NOT NULL DEFAULT '', moved BOOLEAN NOT NULL DEFAULT FALSE);
CREATE INDEX backups_by_site ON backups (site_id, id);
CREATE INDEX backups_by_owner ON backups (owner_id, id);
CREATE INDEX backups_by_expiry ON backups (expires_at) WHERE expires_at > 0;
CREATE TABLE backup_schedules (
  site_id  TEXT PRIMARY KEY,
  owner_id TEXT NOT NULL,
  every    TEXT NOT NULL,         -- hourly, daily, weekly
  at       TEXT NOT NULL,         -- 03:00, UTC
  daily    BIGINT NOT NULL,
  weekly   BIGINT NOT NULL,
  monthly  BIGINT NOT NULL,
  next_at  BIGINT NOT NULL,
  warned   BOOLEAN NOT NULL       -- its owner was told that none is verified
, since BIGINT NOT NULL DEFAULT 0);
CREATE INDEX backup_schedules_due ON backup_schedules (next_at);
CREATE TABLE backup_sweeps (
  id BIGINT PRIMARY KEY,          -- 1
  at BIGINT NOT NULL
);
CREATE INDEX git_settings_poll ON git_settings (poll_at) WHERE poll_minutes > 0;
CREATE TABLE git_pulls (
  site_id    TEXT NOT NULL,
  number     BIGINT NOT NULL,
  title      TEXT NOT NULL,
  branch     TEXT NOT NULL,      -- that it asks to merge
  source     TEXT NOT NULL,      -- owner/repo of the fork that the branch is in; empty: the site's own repository
  author     TEXT NOT NULL,
  commit_hash TEXT NOT NULL,
  open       BOOLEAN NOT NULL,
  fork       BOOLEAN NOT NULL,
  approved   TEXT NOT NULL,      -- the commit of a fork that a member approved; empty: none
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (site_id, number)
);
CREATE TABLE git_events (
  id            TEXT PRIMARY KEY,
  site_id       TEXT NOT NULL,
  provider      TEXT NOT NULL,   -- or poll
  name          TEXT NOT NULL,   -- as the forge calls it
  ref           TEXT NOT NULL,   -- branch, tag or pull request; empty: none
  commit_hash   TEXT NOT NULL,
  outcome       TEXT NOT NULL,
  deployment_id TEXT NOT NULL,   -- empty: nothing was deployed
  at            BIGINT NOT NULL
);
CREATE INDEX git_events_of_site ON git_events (site_id, id);
CREATE VIEW site_forges AS SELECT site_id, provider FROM git_settings WHERE provider <> '';
CREATE TABLE connections (
  id         TEXT PRIMARY KEY,
  owner_id   TEXT NOT NULL,
  provider   TEXT NOT NULL,      -- github, gitlab, gitea, bitbucket
  host       TEXT NOT NULL,      -- of the forge's web pages and repositories
  login      TEXT NOT NULL,      -- as the forge calls the account
  token      TEXT NOT NULL,      -- sealed JSON: the access token, and the user name that goes with it where one does
  error      TEXT NOT NULL,      -- why the forge last refused what was asked with it; empty: it didn't
  error_at   BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
, app_id TEXT NOT NULL DEFAULT '', expires_at BIGINT NOT NULL DEFAULT 0, refreshed_at BIGINT NOT NULL DEFAULT 0, refreshing_until BIGINT NOT NULL DEFAULT 0, ended BOOLEAN NOT NULL DEFAULT FALSE, scopes TEXT NOT NULL DEFAULT '');
CREATE INDEX connections_owner ON connections (owner_id, created_at);
CREATE TABLE site_connections (
  site_id       TEXT PRIMARY KEY,
  connection_id TEXT NOT NULL,
  report        BOOLEAN NOT NULL -- whether deployments are reported to the forge
);
CREATE INDEX site_connections_of ON site_connections (connection_id);
CREATE TABLE forge_reports (
  deployment_id TEXT PRIMARY KEY,
  site_id       TEXT NOT NULL,
  state         TEXT NOT NULL,   -- of the deployment, as it was last told
  record        TEXT NOT NULL,   -- the forge's id of its deployment record; empty: none
  updated_at    BIGINT NOT NULL
, check_id TEXT NOT NULL DEFAULT '');
CREATE INDEX forge_reports_of_site ON forge_reports (site_id, updated_at);
CREATE TABLE forge_comments (
  site_id     TEXT NOT NULL,
  pull        BIGINT NOT NULL,
  comment_id  TEXT NOT NULL,
  PRIMARY KEY (site_id, pull)
);
CREATE TABLE notify_channels (
  id         TEXT PRIMARY KEY,
  owner_id   TEXT NOT NULL,
  site_ids    TEXT NOT NULL,      -- empty: all sites of the owner
  kind       TEXT NOT NULL,      -- slack, discord, teams, mail
  name       TEXT NOT NULL,
  url        TEXT NOT NULL,      -- sealed: of the service's incoming webhook; empty for mail
  events     TEXT NOT NULL,      -- names separated by spaces
  active     BOOLEAN NOT NULL,
  error      TEXT NOT NULL,      -- why the service last refused a message; empty: it didn't
  sent_at    BIGINT NOT NULL,    -- when a message last got through; 0: never
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
, confirmed_at BIGINT NOT NULL DEFAULT 0);
CREATE INDEX notify_channels_owner ON notify_channels (owner_id, created_at);
CREATE TABLE notify_failing (
  site_id TEXT NOT NULL,
  subject TEXT NOT NULL,         -- target and branch of deployments
  since   BIGINT NOT NULL,
  PRIMARY KEY (site_id, subject)
);
CREATE INDEX webhook_deliveries_offered ON webhook_deliveries (hook_id, state, claims, id) WHERE state IN ('offered', 'fetched');
CREATE INDEX webhooks_listening ON webhooks (expires_at) WHERE expires_at > 0;
CREATE TABLE traffic_top (
  site_id TEXT NOT NULL,
  day     BIGINT NOT NULL,  -- when it begins
  kind    TEXT NOT NULL,    -- page, missing, referrer, country
  name    TEXT NOT NULL,
  hits    BIGINT NOT NULL,
  PRIMARY KEY (site_id, day, kind, name)
);
CREATE INDEX traffic_top_day ON traffic_top (day);
CREATE TABLE access_log (
  site_id TEXT NOT NULL,
  at      BIGINT NOT NULL,  -- when the row was written
  id      TEXT NOT NULL,    -- of rows of the same moment
  size    BIGINT NOT NULL,  -- of body
  body    TEXT NOT NULL,    -- JSON lines, gzip, base64
  PRIMARY KEY (site_id, at, id)
);
CREATE INDEX access_log_at ON access_log (at);
CREATE VIEW portraits AS
SELECT release, title, text, color AS colour, icon, image, made_at FROM thumbnails;
CREATE TABLE git_apps (
  id         TEXT PRIMARY KEY,
  provider   TEXT NOT NULL,      -- github, gitlab, gitea, bitbucket
  host       TEXT NOT NULL,      -- of the forge's web pages and repositories
  name       TEXT NOT NULL,
  client_id  TEXT NOT NULL,
  slug       TEXT NOT NULL,      -- in the address of a GitHub App's page; empty: an OAuth app
  hook_digest TEXT NOT NULL,     -- SHA-256 of the id of its webhook, which is a secret; empty: an OAuth app
  secrets    TEXT NOT NULL,      -- sealed JSON: the client secret, and a GitHub App's key and webhook secret
  created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX git_apps_host ON git_apps (host);
CREATE UNIQUE INDEX git_apps_hook ON git_apps (hook_digest) WHERE hook_digest <> '';
CREATE TABLE git_sign_ins (
  digest     TEXT PRIMARY KEY,   -- SHA-256 of the state that the forge sends back
  session_id TEXT NOT NULL,      -- that the answer must come in
  app_id     TEXT NOT NULL,      -- empty: a GitHub App is being created
  host       TEXT NOT NULL,
  verifier   TEXT NOT NULL,      -- sealed: of PKCE (RFC 7636)
  expires_at BIGINT NOT NULL
);
CREATE INDEX git_sign_ins_expires ON git_sign_ins (expires_at);
CREATE INDEX connections_app ON connections (app_id) WHERE app_id <> '';
CREATE INDEX sites_of_repository ON sites (LOWER(repository)) WHERE deleted_at = 0;
CREATE TABLE database_scratch (
  schema_name TEXT PRIMARY KEY, -- on the server; the user has the same name
  server      TEXT NOT NULL,
  until       BIGINT NOT NULL
);
CREATE INDEX wordpress_sites_purged ON wordpress_sites (purged_at);
CREATE INDEX wordpress_sites_update ON wordpress_sites (next_update);
CREATE TABLE webhook_calls (
  id    TEXT PRIMARY KEY,
  hooks TEXT NOT NULL -- ids separated by spaces
);
CREATE TABLE app_storage (
  site_id      TEXT PRIMARY KEY,
  bytes        BIGINT NOT NULL, -- that of its previews included
  capped_bytes BIGINT NOT NULL, -- where its owner has no room left: what it held then; else 0
  measured_at  BIGINT NOT NULL
);
CREATE VIEW shown_previews AS
SELECT site_id, branch, label, deployment_id FROM preview_hosts WHERE deployment_id <> '';
CREATE INDEX backup_schedules_of_owner ON backup_schedules (owner_id);
CREATE TABLE traffic_batches (
  counter TEXT PRIMARY KEY,  -- one process
  number  BIGINT NOT NULL,   -- its batches have rising numbers
  at      BIGINT NOT NULL    -- when it was added
);
CREATE INDEX traffic_batches_at ON traffic_batches (at);
CREATE TABLE notify_asked (
  id       TEXT PRIMARY KEY,
  owner_id TEXT NOT NULL,
  digest   TEXT NOT NULL,        -- SHA-256 of the address
  at       BIGINT NOT NULL
);
CREATE INDEX notify_asked_owner ON notify_asked (owner_id, at);
CREATE INDEX notify_asked_digest ON notify_asked (digest, at);
CREATE TABLE notify_refused (
  owner_id TEXT NOT NULL,
  digest   TEXT NOT NULL,
  at       BIGINT NOT NULL,
  PRIMARY KEY (owner_id, digest)
);
CREATE UNIQUE INDEX databases_name ON databases (site_id, preview, name) WHERE status <> 'deleting';
CREATE UNIQUE INDEX databases_place ON databases (site_id, preview, place) WHERE status <> 'deleting';
CREATE VIEW preview_keys AS SELECT site_id, branch FROM preview_hosts;
CREATE VIEW live AS
  SELECT slug AS host_label, id AS site_id, owner_id, live_release AS release, live_deployment AS deployment_id,
         CASE WHEN deleted_at > 0        THEN 'deleted'
              WHEN status = 'stopped'    THEN 'stopped'
              WHEN live_release <> ''    THEN 'live'
              WHEN status = 'error'      THEN 'error'
              ELSE 'empty' END AS state,
         CASE WHEN runtime IN ('', 'static') THEN 'files' ELSE 'program' END AS backend,
         '' AS node,
         live_version AS version,
         runtime
  FROM sites;
CREATE VIEW previews AS
  SELECT d.label AS label, s.slug AS host_label, d.release AS release, d.id AS deployment_id,
         CASE WHEN d.runtime IN ('', 'static') THEN 'files' ELSE 'program' END AS backend,
         '' AS node,
         d.runtime
  FROM deployments d JOIN sites s ON s.id = d.site_id
  WHERE d.release <> '' AND s.deleted_at = 0 AND s.status <> 'stopped'
  UNION ALL
  SELECT p.label, s.slug, p.release, p.deployment_id,
         CASE WHEN d.runtime IN ('', 'static') THEN 'files' ELSE 'program' END,
         '',
         d.runtime
  FROM preview_hosts p JOIN sites s ON s.id = p.site_id JOIN deployments d ON d.id = p.deployment_id
  WHERE p.release <> '' AND s.deleted_at = 0 AND s.status <> 'stopped';
CREATE TABLE teams (
  id          TEXT PRIMARY KEY,
  owner_id    TEXT NOT NULL UNIQUE,         -- what its sites, domains, webhooks and keys belong to
  name        TEXT NOT NULL,
  slug        TEXT NOT NULL UNIQUE,         -- lower case
  require_2fa BOOLEAN NOT NULL,             -- members without a second factor are blocked
  require_sso BOOLEAN NOT NULL,
  apps        TEXT NOT NULL,                -- all, approved or none
  created_at  BIGINT NOT NULL,
  suspended_at BIGINT NOT NULL,             -- 0: not
  deleting_at BIGINT NOT NULL,              -- since when its sites are being deleted with it; 0: not
  deleted_at  BIGINT NOT NULL               -- 0: exists
, created_by TEXT NOT NULL DEFAULT '');
CREATE TABLE team_members (
  owner_id    TEXT NOT NULL REFERENCES teams (owner_id),
  user_id     TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  role        TEXT NOT NULL,                -- owner, admin, developer, contributor, viewer, billing; empty: guest
  break_glass BOOLEAN NOT NULL,
  joined_at   BIGINT NOT NULL,
  invited_by  TEXT NOT NULL,                -- a user's id, or empty
  PRIMARY KEY (owner_id, user_id)
);
CREATE INDEX team_members_user ON team_members (user_id);
CREATE TABLE site_members (
  site_id  TEXT NOT NULL,
  user_id  TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  owner_id TEXT NOT NULL,
  role     TEXT NOT NULL,                   -- manager, developer, contributor, viewer
  PRIMARY KEY (site_id, user_id)
);
CREATE INDEX site_members_of ON site_members (owner_id, user_id);
CREATE INDEX site_members_user ON site_members (user_id);
CREATE TABLE team_invitations (
  id         TEXT PRIMARY KEY,
  owner_id   TEXT NOT NULL,
  email      TEXT NOT NULL,                 -- normalized
  role       TEXT NOT NULL,                 -- empty: guest
  sites      TEXT NOT NULL,                 -- site:role, separated by spaces
  hash       TEXT NOT NULL UNIQUE,          -- SHA-256 of the token, hex
  invited_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL, in_person BOOLEAN NOT NULL DEFAULT FALSE,
  UNIQUE (owner_id, email)
);
CREATE INDEX team_invitations_end ON team_invitations (expires_at);
CREATE TABLE site_transfers (
  id         TEXT PRIMARY KEY,
  site_id    TEXT NOT NULL UNIQUE,
  from_owner TEXT NOT NULL,
  to_owner   TEXT NOT NULL,                 -- empty: whoever has the code and the address
  to_email   TEXT NOT NULL,                 -- empty: any member of to_owner who may
  hash       TEXT NOT NULL UNIQUE,          -- SHA-256 of the code, hex
  offered    TEXT NOT NULL,                 -- digest of what the sender was shown
  created_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX site_transfers_end ON site_transfers (expires_at);
CREATE VIEW owner_standing AS
  SELECT owner_id, 'personal' AS kind, id, email AS name, suspended_at, suspended_why FROM users
  UNION ALL
  SELECT owner_id, 'team', id, slug, suspended_at, '' FROM teams WHERE deleted_at = 0;
CREATE VIEW people AS
  SELECT u.id, u.owner_id, u.email, u.suspended_at, u.created_at,
         EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = u.id AND f.confirmed)
           OR EXISTS (SELECT 1 FROM passkeys p WHERE p.user_id = u.id) AS two_factor
  FROM users u;
CREATE TABLE oauth_apps (
  id               TEXT PRIMARY KEY,  -- app_…, or the https URL of a client ID metadata document
  owner_id         TEXT NOT NULL,     -- who registered it; empty: the installation's own, or described by its document
  name             TEXT NOT NULL,
  website          TEXT NOT NULL,
  redirect_uris    TEXT NOT NULL,     -- separated by line breaks
  confidential     BOOLEAN NOT NULL,  -- it has a secret and must send it
  secret           TEXT NOT NULL,     -- SHA-256, hex
  secret_hint      TEXT NOT NULL,     -- its first characters
  old_secret       TEXT NOT NULL,     -- the one before the last rotation …
  old_secret_until BIGINT NOT NULL,   -- … which works until then
  disabled_at      BIGINT NOT NULL,   -- by the operator, everywhere; 0: not
  fresh_until      BIGINT NOT NULL,   -- of a metadata document; 0: registered by hand
  created_at       BIGINT NOT NULL
, registered_from TEXT NOT NULL DEFAULT '');
CREATE INDEX oauth_apps_owner ON oauth_apps (owner_id, created_at);
CREATE TABLE oauth_grants (
  id         TEXT PRIMARY KEY,
  app_id     TEXT NOT NULL,
  user_id    TEXT NOT NULL,   -- who consented
  owner_id   TEXT NOT NULL,   -- whose things it is about
  scopes     TEXT NOT NULL,   -- separated by spaces
  sites      TEXT NOT NULL,   -- ids separated by spaces; empty: all
  expires_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  used_at    BIGINT NOT NULL,
  used_addr  TEXT NOT NULL
, audience TEXT NOT NULL DEFAULT '', provider_id TEXT NOT NULL DEFAULT '');
CREATE INDEX oauth_grants_owner ON oauth_grants (owner_id, created_at);
CREATE INDEX oauth_grants_user ON oauth_grants (user_id, app_id);
CREATE INDEX oauth_grants_app ON oauth_grants (app_id);
CREATE TABLE oauth_tokens (
  hash       TEXT PRIMARY KEY,  -- SHA-256 of the token, hex
  grant_id   TEXT NOT NULL,
  kind       TEXT NOT NULL,     -- access or refresh
  scopes     TEXT NOT NULL,     -- of an access token: a part of the grant's
  parent     TEXT NOT NULL,     -- hash of the refresh token that it replaces; empty: the first
  rotated_at BIGINT NOT NULL,   -- of a refresh token: when it was used; 0: it wasn't
  next       TEXT NOT NULL,     -- sealed: the pair that it was exchanged for, for a client that lost the answer
  expires_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX oauth_tokens_grant ON oauth_tokens (grant_id);
CREATE INDEX oauth_tokens_parent ON oauth_tokens (parent);
CREATE INDEX oauth_tokens_expiry ON oauth_tokens (expires_at);
CREATE TABLE oauth_codes (
  hash             TEXT PRIMARY KEY,  -- SHA-256 of the code, hex
  app_id           TEXT NOT NULL,
  user_id          TEXT NOT NULL,
  owner_id         TEXT NOT NULL,
  scopes           TEXT NOT NULL,     -- that the person allowed
  sites            TEXT NOT NULL,
  redirect_uri     TEXT NOT NULL,
  challenge        TEXT NOT NULL,     -- PKCE, S256
  grant_expires_at BIGINT NOT NULL,
  expires_at       BIGINT NOT NULL,
  used_at          BIGINT NOT NULL,   -- 0: it wasn't
  grant_id         TEXT NOT NULL      -- that it began; empty: none yet
, audience TEXT NOT NULL DEFAULT '', provider_id TEXT NOT NULL DEFAULT '');
CREATE INDEX oauth_codes_expiry ON oauth_codes (expires_at);
CREATE TABLE oauth_devices (
  hash             TEXT PRIMARY KEY,      -- SHA-256 of the device code, hex
  user_code        TEXT NOT NULL UNIQUE,  -- that the person types
  app_id           TEXT NOT NULL,
  scopes           TEXT NOT NULL,         -- that it asked for
  addr             TEXT NOT NULL,         -- of the program
  created_at       BIGINT NOT NULL,
  expires_at       BIGINT NOT NULL,
  wait             BIGINT NOT NULL,       -- least milliseconds between two polls
  polled_at        BIGINT NOT NULL,
  status           TEXT NOT NULL,         -- pending, approved, denied, used
  user_id          TEXT NOT NULL,         -- who decided
  owner_id         TEXT NOT NULL,
  granted          TEXT NOT NULL,         -- scopes that the person allowed
  sites            TEXT NOT NULL,
  grant_expires_at BIGINT NOT NULL
, provider_id TEXT NOT NULL DEFAULT '', network TEXT NOT NULL DEFAULT '');
CREATE INDEX oauth_devices_expiry ON oauth_devices (expires_at);
CREATE INDEX audit_grant ON audit (grant_id) WHERE grant_id <> '';
CREATE TABLE sso_providers (
  id           TEXT PRIMARY KEY,
  owner_id     TEXT NOT NULL,     -- the team whose members sign in with it; empty: the operator's, for everybody
  kind         TEXT NOT NULL,     -- google, microsoft, gitlab, github or oidc
  name         TEXT NOT NULL,     -- as the sign-in page shows it
  issuer       TEXT NOT NULL,
  client_id    TEXT NOT NULL,
  secret       TEXT NOT NULL,     -- sealed
  domains      TEXT NOT NULL,     -- whose addresses get an account at the first sign-in; separated by spaces, * is every one
  created_at   BIGINT NOT NULL
, join_role TEXT NOT NULL DEFAULT '');
CREATE TABLE sso_sign_ins (
  digest      TEXT PRIMARY KEY,   -- SHA-256 of the state, hex
  browser     TEXT NOT NULL,      -- SHA-256 of the browser's cookie, hex
  provider_id TEXT NOT NULL,
  secrets     TEXT NOT NULL,      -- sealed: PKCE's verifier and the nonce
  session_id  TEXT NOT NULL,      -- that links an identity to its user; empty: a sign-in
  next        TEXT NOT NULL,      -- a path of the dashboard
  expires_at  BIGINT NOT NULL
);
CREATE INDEX sso_sign_ins_browser ON sso_sign_ins (browser);
CREATE INDEX sso_sign_ins_end ON sso_sign_ins (expires_at);
CREATE TABLE oauth_made (
  kind     TEXT NOT NULL,  -- webhook, deploy_hook, channel
  id       TEXT NOT NULL,  -- of a deploy hook: the digest of its id
  owner_id TEXT NOT NULL,
  grant_id TEXT NOT NULL,
  PRIMARY KEY (kind, id)
);
CREATE INDEX oauth_made_grant ON oauth_made (grant_id);
CREATE TABLE oauth_approvals (
  owner_id     TEXT NOT NULL,
  app_id       TEXT NOT NULL,
  requested_by TEXT NOT NULL,    -- user
  approved_by  TEXT NOT NULL,    -- user; empty: not yet
  created_at   BIGINT NOT NULL,
  PRIMARY KEY (owner_id, app_id)
);
CREATE INDEX oauth_approvals_app ON oauth_approvals (app_id);
CREATE VIEW app_policies AS SELECT owner_id, apps FROM teams WHERE deleted_at = 0;
CREATE TABLE usage_sources (
  owner_id TEXT NOT NULL,
  meter    TEXT NOT NULL,
  hour     BIGINT NOT NULL,   -- when it begins
  source   TEXT NOT NULL,     -- a process, dep_.../attempt, or sample
  site_id  TEXT NOT NULL,     -- '' where no site uses it
  quantity BIGINT NOT NULL,
  counted  BIGINT NOT NULL,   -- so much of it is in sealed hours
  moved    BIGINT NOT NULL,   -- what the last sealing added to them
  PRIMARY KEY (owner_id, meter, hour, source, site_id)
);
CREATE INDEX usage_sources_open ON usage_sources (owner_id, meter, hour) WHERE counted < quantity;
CREATE INDEX usage_sources_hour ON usage_sources (hour);
CREATE TABLE usage_hours (
  owner_id TEXT NOT NULL,
  meter    TEXT NOT NULL,
  hour     BIGINT NOT NULL,
  quantity BIGINT NOT NULL,
  PRIMARY KEY (owner_id, meter, hour)
);
CREATE INDEX usage_hours_hour ON usage_hours (hour);
CREATE TABLE usage_days (
  owner_id TEXT NOT NULL,
  meter    TEXT NOT NULL,
  day      BIGINT NOT NULL,
  quantity BIGINT NOT NULL,
  PRIMARY KEY (owner_id, meter, day)
);
CREATE TABLE usage_sites (
  owner_id TEXT NOT NULL,
  meter    TEXT NOT NULL,
  day      BIGINT NOT NULL,
  site_id  TEXT NOT NULL,
  quantity BIGINT NOT NULL,
  PRIMARY KEY (owner_id, meter, day, site_id)
);
CREATE INDEX usage_sites_day ON usage_sites (day);
CREATE TABLE usage_sealed (
  one  BIGINT PRIMARY KEY,
  hour BIGINT NOT NULL
);
CREATE TABLE usage_caps (
  owner_id TEXT NOT NULL,
  meter    TEXT NOT NULL,
  month    BIGINT NOT NULL,   -- 202611 is November 2026
  most     BIGINT NOT NULL,   -- the limit that warned is a share of
  warned   BIGINT NOT NULL,   -- the highest share that was told of, in percent
  armed    BOOLEAN NOT NULL,  -- whether so little is left that nodes need leases
  reached  BOOLEAN NOT NULL, throttle BIGINT NOT NULL DEFAULT 0, begins BIGINT NOT NULL DEFAULT 0, ends BIGINT NOT NULL DEFAULT 0,  -- whether nothing is left
  PRIMARY KEY (owner_id, meter, month)
);
CREATE VIEW usage_before AS
  SELECT owner_id, 'bandwidth.bytes' AS meter, month, '' AS site_id, bytes AS quantity FROM bandwidth
  UNION ALL
  SELECT owner_id, 'build.ms' AS meter, month, site_id, ms AS quantity FROM build_time;
CREATE TABLE usage_loans (
  owner_id    TEXT NOT NULL,
  node        TEXT NOT NULL,   -- a process
  outstanding BIGINT NOT NULL,
  until       BIGINT NOT NULL, -- when it counts no longer, unless the node is heard of again
  PRIMARY KEY (owner_id, node)
);
CREATE TABLE site_favorites (
  user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  site_id TEXT NOT NULL REFERENCES sites (id) ON DELETE CASCADE,
  PRIMARY KEY (user_id, site_id)
);
CREATE INDEX site_favorites_site ON site_favorites (site_id);
CREATE TABLE uploads (
  id             TEXT PRIMARY KEY,
  site_id        TEXT NOT NULL,
  owner_id       TEXT NOT NULL,
  kind           TEXT NOT NULL,     -- output: published as it is; source: detected and built
  status         TEXT NOT NULL,     -- open or deployed
  target         TEXT NOT NULL,     -- production or preview
  branch         TEXT NOT NULL,
  title          TEXT NOT NULL,
  commit_hash    TEXT NOT NULL,     -- this and the next three as the client claims
  commit_message TEXT NOT NULL,
  commit_author  TEXT NOT NULL,
  dirty          BOOLEAN NOT NULL,  -- there were changes beside the commit
  manifest       TEXT NOT NULL,     -- the blob that lists the files; empty: none yet
  needed         TEXT NOT NULL,     -- the blob that lists what was missing when the manifest came; empty: nothing
  files          BIGINT NOT NULL,
  bytes          BIGINT NOT NULL,
  needed_bytes   BIGINT NOT NULL,
  deployment_id  TEXT NOT NULL,     -- the first of it; empty: none
  created_at     BIGINT NOT NULL,
  touched_at     BIGINT NOT NULL    -- when the last byte came
);
CREATE INDEX uploads_site ON uploads (site_id, id);
CREATE INDEX uploads_owner ON uploads (owner_id, touched_at);
CREATE TABLE upload_batches (
  id        TEXT PRIMARY KEY,
  upload_id TEXT NOT NULL REFERENCES uploads (id) ON DELETE CASCADE,
  blobs     TEXT NOT NULL           -- base64 of their digests and lengths
);
CREATE INDEX upload_batches_upload ON upload_batches (upload_id);
CREATE VIEW uploads_in_use AS
  SELECT DISTINCT upload_id FROM deployments
  WHERE status IN ('pending', 'building', 'deploying') AND upload_id <> '';
CREATE VIEW site_releases AS
  SELECT DISTINCT site_id, release FROM deployments WHERE release <> '';
CREATE INDEX oauth_apps_registered ON oauth_apps (registered_from, created_at);
CREATE INDEX sso_providers_owner ON sso_providers (owner_id);
CREATE TABLE "sso_identities" (
  owner_id    TEXT NOT NULL DEFAULT '',  -- of the provider; empty: the operator's
  issuer      TEXT NOT NULL,
  subject     TEXT NOT NULL,      -- the issuer's id of the person
  id          TEXT NOT NULL UNIQUE,
  user_id     TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  email       TEXT NOT NULL,      -- as the issuer told it last; shown, never compared
  created_at  BIGINT NOT NULL,
  used_at     BIGINT NOT NULL,    -- 0: never
  PRIMARY KEY (owner_id, issuer, subject)
);
CREATE INDEX sso_identities_of_user ON sso_identities (user_id);
CREATE TABLE sso_domains (
  id            TEXT PRIMARY KEY,
  owner_id      TEXT NOT NULL,
  provider_id   TEXT NOT NULL,
  name          TEXT NOT NULL,    -- lower case, as the DNS has it
  token         TEXT NOT NULL,    -- that the TXT record must hold
  created_at    BIGINT NOT NULL,
  verified_at   BIGINT NOT NULL,  -- 0: it isn't
  missing_since BIGINT NOT NULL,  -- the record of a verified domain; 0: it is there
  checked_at    BIGINT NOT NULL,  -- 0: never
  next_check    BIGINT NOT NULL,  -- 0: none by itself
  problem       TEXT NOT NULL,
  UNIQUE (owner_id, name)
);
CREATE UNIQUE INDEX sso_domains_verified ON sso_domains (name) WHERE verified_at > 0;
CREATE INDEX sso_domains_due ON sso_domains (next_check) WHERE next_check > 0;
CREATE VIEW team_providers AS SELECT id, owner_id FROM sso_providers WHERE owner_id <> '';
CREATE TABLE session_providers (
  session_id  TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
  provider_id TEXT NOT NULL,
  PRIMARY KEY (session_id, provider_id)
);
CREATE INDEX session_providers_provider ON session_providers (provider_id);
CREATE TABLE break_glass_uses (
  session_id  TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
  owner_id    TEXT NOT NULL,
  used_at     BIGINT NOT NULL,
  PRIMARY KEY (session_id, owner_id)
);
CREATE TABLE schema_readers (
  id           BIGINT PRIMARY KEY,
  schema_known BIGINT NOT NULL
);
CREATE VIEW linked_users AS SELECT user_id FROM sso_identities;
CREATE VIEW team_identities AS SELECT owner_id, user_id, used_at FROM sso_identities WHERE owner_id <> '';
CREATE TABLE billing_settings (
  seller_id  TEXT PRIMARY KEY,  -- '' is the installation
  settings   TEXT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE TABLE billing_plans (
  id         TEXT PRIMARY KEY,  -- plan_...
  seller_id  TEXT NOT NULL,
  name       TEXT NOT NULL,     -- in requests, such as pro
  title      TEXT NOT NULL,     -- for people
  created_at BIGINT NOT NULL,
  UNIQUE (seller_id, name)
);
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
CREATE TABLE billing_entitlements (
  version_id TEXT NOT NULL,
  name       TEXT NOT NULL,
  value      BIGINT NOT NULL,
  PRIMARY KEY (version_id, name)
);
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
CREATE TABLE billing_profiles (
  owner_id   TEXT PRIMARY KEY,
  profile    TEXT NOT NULL,     -- JSON
  vat_state  TEXT NOT NULL,     -- none, unchecked, valid or invalid
  trial_at   BIGINT NOT NULL,   -- when the owner began a trial; 0: never
  updated_at BIGINT NOT NULL
, vat_checked_at BIGINT NOT NULL DEFAULT 0, vat_consultation TEXT NOT NULL DEFAULT '', vat_next_at BIGINT NOT NULL DEFAULT 0, vat_by_vies BOOLEAN NOT NULL DEFAULT FALSE, vat_found TEXT NOT NULL DEFAULT '{}');
CREATE TABLE billing_budgets (
  id         TEXT PRIMARY KEY,  -- bud_..., in the order of time
  owner_id   TEXT NOT NULL,
  amount     BIGINT NOT NULL,   -- of a period
  currency   TEXT NOT NULL,
  from_at    BIGINT NOT NULL
);
CREATE INDEX billing_budgets_owner ON billing_budgets (owner_id, id);
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
, counts_from BIGINT NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX billing_subscriptions_open ON billing_subscriptions (owner_id) WHERE status <> 'expired';
CREATE INDEX billing_subscriptions_next ON billing_subscriptions (next_at) WHERE next_at > 0;
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
CREATE TABLE billing_numbers (
  seller_id TEXT NOT NULL,
  series    TEXT NOT NULL,        -- '' for invoices, CN- for credit notes
  year      BIGINT NOT NULL,
  last      BIGINT NOT NULL,
  PRIMARY KEY (seller_id, series, year)
);
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
  created_at      BIGINT NOT NULL, customer TEXT NOT NULL DEFAULT '', method TEXT NOT NULL DEFAULT '', session TEXT NOT NULL DEFAULT '', sent_at BIGINT NOT NULL DEFAULT 0, refunded BIGINT NOT NULL DEFAULT 0,
  UNIQUE (invoice_id, attempt)
);
CREATE UNIQUE INDEX billing_payments_open ON billing_payments (invoice_id)
  WHERE status IN ('pending', 'processing', 'requires_action', 'unknown');
CREATE UNIQUE INDEX billing_payments_reference ON billing_payments (provider, reference) WHERE reference <> '';
CREATE INDEX billing_payments_owner ON billing_payments (owner_id, id);
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
CREATE TABLE billing_events (
  occurrence TEXT PRIMARY KEY,
  at         BIGINT NOT NULL
);
CREATE TABLE billing_coupons (
  code       TEXT PRIMARY KEY,
  points     BIGINT NOT NULL,   -- basis points of a period's price; 0: an amount
  amount     BIGINT NOT NULL,
  currency   TEXT NOT NULL,     -- of the amount
  periods    BIGINT NOT NULL,   -- that it is worth this for
  most       BIGINT NOT NULL,   -- redemptions; 0: any number
  redeemed   BIGINT NOT NULL,
  until_at   BIGINT NOT NULL,   -- 0: without an end
  created_at BIGINT NOT NULL
);
CREATE TABLE billing_redemptions (
  code            TEXT NOT NULL,
  owner_id        TEXT NOT NULL,
  subscription_id TEXT NOT NULL,
  periods_left    BIGINT NOT NULL,
  PRIMARY KEY (code, owner_id)
);
CREATE INDEX billing_redemptions_subscription ON billing_redemptions (subscription_id);
CREATE INDEX audit_app ON audit (app_id, id) WHERE app_id <> '';
CREATE VIEW ending_owners AS SELECT owner_id FROM teams WHERE deleting_at > 0;
CREATE TABLE address_mails (
  owner_id TEXT NOT NULL,                   -- who caused them
  digest   TEXT NOT NULL,                   -- SHA-256 of the address, hex
  at       BIGINT NOT NULL
);
CREATE INDEX address_mails_owner ON address_mails (owner_id, at);
CREATE INDEX address_mails_address ON address_mails (digest, at);
CREATE TABLE screenshots (
  site_id TEXT NOT NULL,
  kind    TEXT NOT NULL,          -- live, or before and after the last update of its WordPress
  image   TEXT NOT NULL,          -- a JPEG in base64; empty: none could be taken
  made_at BIGINT NOT NULL,
  PRIMARY KEY (site_id, kind)
);
CREATE INDEX team_members_joined ON team_members (owner_id, joined_at, user_id);
CREATE TABLE nodes (
  id          TEXT PRIMARY KEY,     -- of its data directory
  run         TEXT NOT NULL,        -- of its process: of two with one data directory the later one has the row
  name        TEXT NOT NULL,        -- the host's, for people
  address     TEXT NOT NULL,        -- host:port at which other nodes reach it; empty: they don't
  version     TEXT NOT NULL,
  roles       TEXT NOT NULL,        -- separated by commas
  blobs       TEXT NOT NULL,        -- where its files are; empty: in its data directory. Without credentials.
  site_domain TEXT NOT NULL,
  ahead_ms    BIGINT NOT NULL,      -- how far its clock is ahead of the database's
  state       TEXT NOT NULL,        -- up, draining or down
  started_at  BIGINT NOT NULL,
  seen_at     BIGINT NOT NULL,      -- these three by the database's clock
  lease_until BIGINT NOT NULL       -- what it runs is its own until then; 0: it has stopped
, storage TEXT NOT NULL DEFAULT '');
CREATE TABLE secrets_keys (
  id     BIGINT PRIMARY KEY,        -- always 1
  key_id TEXT NOT NULL              -- the first digits of the newest key's digest
);
CREATE TABLE placements (
  site_id TEXT PRIMARY KEY,
  node    TEXT NOT NULL,
  pinned  BOOLEAN NOT NULL,         -- its files or databases are there: no other node may take it
  since   BIGINT NOT NULL
, stores BOOLEAN NOT NULL DEFAULT FALSE, cut_from TEXT NOT NULL DEFAULT '');
CREATE INDEX placements_node ON placements (node);
CREATE VIEW live_nodes AS SELECT id, name, address, state, lease_until,
  CASE WHEN lease_until > 0 THEN lease_until ELSE seen_at END AS ended
  FROM nodes;
CREATE TABLE billing_cards (
  owner_id    TEXT NOT NULL,
  currency    TEXT NOT NULL,
  provider    TEXT NOT NULL,     -- stripe
  customer    TEXT NOT NULL,     -- as the provider names the owner
  method      TEXT NOT NULL,     -- as the provider names the card; '' while none is stored
  brand       TEXT NOT NULL,
  last4       TEXT NOT NULL,
  exp_month   BIGINT NOT NULL,
  exp_year    BIGINT NOT NULL,
  declined    TEXT NOT NULL,     -- why it must not be charged any more; '' is fine
  updated_at  BIGINT NOT NULL,
  PRIMARY KEY (owner_id, currency)
);
CREATE TABLE billing_trial_cards (
  fingerprint TEXT PRIMARY KEY,
  owner_id    TEXT NOT NULL,
  at          BIGINT NOT NULL
);
CREATE TABLE billing_setups (
  id          TEXT PRIMARY KEY,  -- set_...
  owner_id    TEXT NOT NULL,
  currency    TEXT NOT NULL,
  session     TEXT NOT NULL,     -- as the provider names the visit; '' until it is known
  action      TEXT NOT NULL,     -- a subscription to begin, as JSON; '' is none
  digest      TEXT NOT NULL,     -- of the previewed price
  status      TEXT NOT NULL,     -- open, completed, failed or expired
  problem     TEXT NOT NULL,     -- why the subscription didn't begin
  created_at  BIGINT NOT NULL
);
CREATE INDEX billing_setups_owner ON billing_setups (owner_id, id);
CREATE TABLE billing_refunds (
  id          TEXT PRIMARY KEY,  -- rfd_...
  payment_id  TEXT NOT NULL,
  owner_id    TEXT NOT NULL,
  amount      BIGINT NOT NULL,
  currency    TEXT NOT NULL,
  status      TEXT NOT NULL,     -- pending, completed or failed
  reference   TEXT NOT NULL,     -- as the provider names it; '' until it is known
  reason      TEXT NOT NULL,
  created_at  BIGINT NOT NULL
);
CREATE UNIQUE INDEX billing_refunds_reference ON billing_refunds (reference) WHERE reference <> '';
CREATE INDEX billing_refunds_payment ON billing_refunds (payment_id);
CREATE INDEX billing_refunds_pending ON billing_refunds (created_at) WHERE status = 'pending';
CREATE TABLE billing_disputes (
  reference   TEXT PRIMARY KEY,  -- as the provider names it
  payment_id  TEXT NOT NULL,
  owner_id    TEXT NOT NULL,
  amount      BIGINT NOT NULL,
  currency    TEXT NOT NULL,
  status      TEXT NOT NULL,     -- open, won or lost
  created_at  BIGINT NOT NULL
);
CREATE INDEX billing_disputes_payment ON billing_disputes (payment_id);
CREATE TABLE stripe_accounts (
  id          TEXT PRIMARY KEY,  -- sta_..., the end of its webhook's URL
  live        BOOLEAN NOT NULL,
  api_key     TEXT NOT NULL,     -- sealed
  secret      TEXT NOT NULL,     -- of webhooks, sealed; '' is none yet
  old_secret  TEXT NOT NULL,     -- the one before, sealed, while it is rotated
  read_until  BIGINT NOT NULL,   -- events up to here were listed
  compared_at BIGINT NOT NULL,   -- when payments were last compared with the ledger
  differences TEXT NOT NULL,     -- that were found then, as JSON
  created_at  BIGINT NOT NULL,
  ended_at    BIGINT NOT NULL    -- 0: in use
, round BIGINT NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX stripe_accounts_used ON stripe_accounts (ended_at) WHERE ended_at = 0;
CREATE TABLE stripe_events (
  id          TEXT PRIMARY KEY,  -- evt_...
  type        TEXT NOT NULL,
  object      TEXT NOT NULL,     -- id of what it is about
  received_at BIGINT NOT NULL,
  done_at     BIGINT NOT NULL    -- 0: not yet
, failures BIGINT NOT NULL DEFAULT 0, retry_at BIGINT NOT NULL DEFAULT 0);
CREATE INDEX stripe_events_received ON stripe_events (received_at);
CREATE INDEX stripe_events_open ON stripe_events (received_at) WHERE done_at = 0;
CREATE TABLE sign_ups (
  id         TEXT PRIMARY KEY,  -- sgn_...
  email      TEXT NOT NULL,
  hash       TEXT NOT NULL,     -- of the link's token; '' until it is mailed
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
, seller_id TEXT NOT NULL DEFAULT '');
CREATE UNIQUE INDEX sign_ups_hash ON sign_ups (hash) WHERE hash <> '';
CREATE INDEX sign_ups_email ON sign_ups (email);
CREATE INDEX sign_ups_created ON sign_ups (created_at);
CREATE TABLE upload_parts (
  upload_id TEXT NOT NULL REFERENCES uploads (id) ON DELETE CASCADE,
  digest    TEXT NOT NULL,          -- of the whole file
  start     BIGINT NOT NULL,        -- where the part begins in it
  size      BIGINT NOT NULL,        -- the part's bytes
  blob      TEXT NOT NULL,
  PRIMARY KEY (upload_id, digest, start)
);
CREATE TABLE billing_off (
  since BIGINT NOT NULL
);
CREATE VIEW plan_limits AS
  SELECT s.owner_id AS owner_id, e.name AS name, e.value AS value
  FROM billing_subscriptions s JOIN billing_entitlements e ON e.version_id = s.version_id WHERE s.status <> 'expired'
  UNION ALL
  SELECT owner_id, name, value FROM billing_grants;
CREATE TABLE action_runs (
  token      TEXT NOT NULL PRIMARY KEY, -- digest of the ID token's id: it works once
  site_id    TEXT NOT NULL,
  key_id     TEXT NOT NULL,
  expires_at BIGINT NOT NULL            -- of the key and of the ID token, whichever is later
);
CREATE INDEX action_runs_site ON action_runs (site_id, expires_at);
CREATE INDEX billing_invoices_number_only ON billing_invoices (number) WHERE number <> '';
CREATE INDEX billing_payments_invoice ON billing_payments (invoice_id, attempt);
CREATE TABLE confirmations (
  id         TEXT   NOT NULL PRIMARY KEY,
  user_id    TEXT   NOT NULL REFERENCES users (id) ON DELETE CASCADE, -- who confirms
  owner_id   TEXT   NOT NULL,             -- whose things it is about: an account's or a team's
  binding    TEXT   NOT NULL,             -- digest of the credential, the tool and its arguments
  via        TEXT   NOT NULL,             -- the agent's credential in words
  addr       TEXT   NOT NULL,             -- from which it asked
  title      TEXT   NOT NULL,             -- of the tool
  about      TEXT   NOT NULL,             -- JSON: labels and values that the person reads
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  decision   TEXT   NOT NULL DEFAULT '',  -- approved or declined; empty: open
  used_at    BIGINT NOT NULL DEFAULT 0    -- 0: the call was not made yet
);
CREATE INDEX confirmations_user ON confirmations (user_id, binding);
CREATE INDEX confirmations_expiry ON confirmations (expires_at);
CREATE TABLE storage_marks (
  id     BIGINT PRIMARY KEY,        -- always 1
  mark   TEXT NOT NULL,             -- what the directory's file .slipway-storage holds
  placed BOOLEAN NOT NULL           -- the file has been written: a directory without it is another one, or is not mounted
);
CREATE TABLE retention (
  owner_id        TEXT PRIMARY KEY,
  subscription_id TEXT NOT NULL,
  notices         BIGINT NOT NULL,  -- that were sent
  delete_at       BIGINT NOT NULL,  -- when the sites are backed up, then deleted
  backups_since   BIGINT NOT NULL   -- when their backups began; 0: not yet
);
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
CREATE INDEX jobs_next ON jobs (queue, run_at, id, share, kind, node) WHERE state = 'ready';
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
, host TEXT NOT NULL DEFAULT '');
CREATE TABLE billing_seller_owners (
  owner_id  TEXT PRIMARY KEY,
  seller_id TEXT NOT NULL REFERENCES billing_sellers (id),
  since     BIGINT NOT NULL
);
CREATE INDEX billing_seller_owners_seller ON billing_seller_owners (seller_id);
CREATE VIEW owner_sellers AS
  SELECT owner_id, seller_id FROM billing_seller_owners
  UNION ALL
  SELECT m.owner_id, min(o.seller_id)
  FROM team_members m JOIN users u ON u.id = m.user_id LEFT JOIN billing_seller_owners o ON o.owner_id = u.owner_id
  WHERE m.role = 'owner' AND EXISTS (SELECT 1 FROM billing_sellers)
    AND NOT EXISTS (SELECT 1 FROM billing_seller_owners x WHERE x.owner_id = m.owner_id)
  GROUP BY m.owner_id HAVING count(*) = count(o.seller_id) AND min(o.seller_id) = max(o.seller_id);
CREATE VIEW control_hosts AS
  SELECT host, id AS seller_id FROM billing_sellers WHERE host <> '' AND NOT EXISTS (SELECT 1 FROM billing_off);
CREATE VIEW sellers AS SELECT id, name, series, sender, reply_to, host FROM billing_sellers;
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
CREATE INDEX billing_subscriptions_latest ON billing_subscriptions (owner_id, created_at);
CREATE VIEW limit_cycles AS
  SELECT s.owner_id AS owner_id, s.anchor AS anchor, s.counts_from AS counts_from, s.trial_end AS trial_end,
    CASE WHEN s.status IN ('canceled', 'expired') THEN s.period_end ELSE 0 END AS ends
  FROM billing_subscriptions s
  WHERE s.anchor > 0 AND NOT EXISTS (SELECT 1 FROM billing_off) AND NOT EXISTS (
    SELECT 1 FROM billing_subscriptions o WHERE o.owner_id = s.owner_id AND o.anchor > 0
      AND (o.created_at > s.created_at OR o.created_at = s.created_at AND o.id > s.id));
CREATE INDEX usage_caps_ends ON usage_caps (ends);
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
CREATE VIEW capped_owners AS
  SELECT owner_id, month, begins, ends FROM usage_caps WHERE armed AND meter = 'bandwidth.bytes';
CREATE VIEW throttled_owners AS
  SELECT owner_id, month, throttle AS rate, reached, begins, ends FROM usage_caps
  WHERE throttle > 0 AND (armed OR reached) AND meter = 'bandwidth.bytes';
CREATE TABLE first_links (
  id         INTEGER PRIMARY KEY CHECK (id = 1),
  sealed     TEXT NOT NULL, -- its token
  expires_at BIGINT NOT NULL
);
CREATE VIEW memberships AS
  SELECT id AS user_id, owner_id, '' AS team_id, '' AS slug, 'owner' AS role, '' AS sites, FALSE AS blocked,
         suspended_at, created_at AS joined_at, FALSE AS sso_required, FALSE AS sso_linked, FALSE AS break_glass
  FROM users
  UNION ALL
  SELECT m.user_id, m.owner_id, t.id, t.slug, m.role,
         COALESCE((SELECT group_concat(r.role, ' ')
                   FROM (SELECT s.site_id || ':' || s.role AS role FROM site_members s
                         WHERE s.owner_id = m.owner_id AND s.user_id = m.user_id ORDER BY s.site_id) AS r), ''),
         t.require_2fa AND NOT EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = m.user_id AND f.confirmed)
                       AND NOT EXISTS (SELECT 1 FROM passkeys p WHERE p.user_id = m.user_id),
         t.suspended_at, m.joined_at, t.require_sso,
         EXISTS (SELECT 1 FROM team_identities i WHERE i.owner_id = m.owner_id AND i.user_id = m.user_id),
         m.break_glass AND m.role = 'owner'
           AND (EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = m.user_id AND f.confirmed)
                OR EXISTS (SELECT 1 FROM passkeys p WHERE p.user_id = m.user_id))
  FROM team_members m JOIN teams t ON t.owner_id = m.owner_id
  WHERE t.deleted_at = 0;
CREATE TABLE usage_divided (
  owner_id TEXT NOT NULL,
  day      BIGINT NOT NULL,
  PRIMARY KEY (owner_id, day)
);
CREATE INDEX usage_divided_day ON usage_divided (day);
CREATE TABLE usage_parts (
  owner_id TEXT NOT NULL,
  meter    TEXT NOT NULL,
  hour     BIGINT NOT NULL,
  quantity BIGINT NOT NULL,
  PRIMARY KEY (owner_id, meter, hour)
);
CREATE INDEX usage_parts_hour ON usage_parts (hour);
CREATE VIEW sign_in_providers AS SELECT id, owner_id FROM sso_providers;
CREATE VIEW team_links AS
  SELECT p.id AS provider_id, i.owner_id, i.user_id
  FROM sso_identities i JOIN sso_providers p ON p.owner_id = i.owner_id AND p.issuer = i.issuer
  WHERE i.owner_id <> '';
CREATE VIEW two_factor_teams AS SELECT owner_id FROM teams WHERE require_2fa AND deleted_at = 0;
CREATE VIEW provided_users AS
  SELECT i.user_id FROM sso_identities i JOIN sso_providers p ON p.owner_id = i.owner_id AND p.issuer = i.issuer
  WHERE i.owner_id = '';
CREATE INDEX teams_created_by ON teams (created_by);
CREATE VIEW owner_makers AS
  SELECT owner_id, id AS user_id FROM users
  UNION ALL
  SELECT owner_id, created_by FROM teams WHERE created_by <> '';
CREATE VIEW open_invoices AS
  SELECT owner_id, due_at FROM billing_invoices WHERE status = 'open' AND NOT EXISTS (SELECT 1 FROM billing_off);
CREATE VIEW run_keys AS SELECT site_id, key_id FROM action_runs WHERE key_id <> '';
CREATE VIEW known_secrets AS
  SELECT h.owner_id, 'deploy_hook' AS kind, h.name AS name, h.site_id AS site_id, s.name AS site
  FROM deploy_hooks h JOIN sites s ON s.id = h.site_id WHERE s.deleted_at = 0
  UNION ALL
  SELECT s.owner_id, 'git_hook', '', s.id, s.name
  FROM git_settings g JOIN sites s ON s.id = g.site_id WHERE g.hook_digest <> '' AND s.deleted_at = 0
  UNION ALL
  SELECT owner_id, 'webhook', host, '', '' FROM webhooks WHERE deleted_at = 0 AND expires_at = 0;
CREATE TABLE commit_marks (
  id     TEXT PRIMARY KEY, -- sorts by the time it was made
  barred BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE TABLE forgotten_nodes (
  id           TEXT PRIMARY KEY,
  forgotten_at BIGINT NOT NULL
);
CREATE VIEW primary_hosts AS SELECT site_id, name AS host FROM domains WHERE is_primary AND status = 'active';
CREATE TABLE installation_backup (
  id           BIGINT PRIMARY KEY,
  every        BIGINT NOT NULL DEFAULT 0, -- seconds from one to the next; 0: by hand alone
  since        BIGINT NOT NULL DEFAULT 0, -- when that was set
  succeeded_at BIGINT NOT NULL DEFAULT 0,
  proven_at    BIGINT NOT NULL DEFAULT 0, -- when all that the newest holds was last known to be readable
  failed_at    BIGINT NOT NULL DEFAULT 0,
  error        TEXT NOT NULL DEFAULT '',  -- of the last failure
  damaged      TEXT NOT NULL DEFAULT '',  -- ids of backups that need a missing or damaged object, with commas
  told_at      BIGINT NOT NULL DEFAULT 0  -- when operators were told of a problem; 0: there was none since
);
CREATE VIEW run_settings AS SELECT s.id AS site_id, s.run, COALESCE(w.revision, 0) AS revision, s.updated_at AS updated
  FROM sites s LEFT JOIN wordpress_sites w ON w.site_id = s.id;
INSERT INTO live_version VALUES (1, 0);
INSERT INTO certificate_version VALUES (1, 0);
INSERT INTO oauth_apps VALUES ('app_slipway_cli', '', 'Slipway CLI', '', 'http://127.0.0.1/callback', 0, '', '', '', 0, 0, 0, 0, '');
INSERT INTO usage_sealed VALUES (1, 0);
