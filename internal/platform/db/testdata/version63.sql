-- What the program with schema version 63 added to the installation of version14.sql: at
-- least one row in every table that is new since, and values in every new column.
UPDATE deployments SET target = 'preview', pinned = TRUE, preview_label = 'feature-abc', crashes = 1, hops = 2, hook_body = 'sealed', place = 0, bundle = 'bundle1' WHERE id = 'dep_2';
UPDATE deployments SET place = 1 WHERE id = 'dep_3';
UPDATE sites SET run = '{"command":"node server.js"}', runtime = 'node' WHERE id = 'site_1';
UPDATE api_keys SET user_id = 'user_b' WHERE id = 'key_a';
UPDATE build_uids SET used_at = 1790000000007 WHERE uid = 200001;
UPDATE acme_ledger SET class = 'renewal', owner_id = 'own__a' WHERE id = 'led_1';
UPDATE deploy_hooks SET clear_cache = TRUE, title = 'CMS', per_minute = 6, per_day = 100, minute_at = 29833333, minute_calls = 1, day_at = 20717, day_calls = 3, addresses = '192.0.2.0/24', secret = 'sealed', expires_at = 1990000000000;
UPDATE domains SET redirect_lost_at = 1790000000003, delegated = FALSE WHERE id = 'dom_2';
UPDATE idempotent_answers SET owner_id = 'own__a', size = 6;
UPDATE webhooks SET host = 'hooks.example.com', url_key = 'https://hooks.example.com/a', site_ids = 'site_1', succeeded_at = 1790000000003, timeouts = 1, warned_at = 1790000000004, expires_at = 1990000000000 WHERE id = 'wh_1';
UPDATE webhook_events SET site_id = 'site_1', hops = 1;
UPDATE webhook_attempts SET request = 'POST /a', response = '200 OK' WHERE delivery_id = 'whd_1';
INSERT INTO app_logs (site_id, n, at, level, stream, process, deployment_id, message) VALUES ('site_1', 1, 1790000000005, 'info', 'stdout', 'web', 'dep_1', 'listening');
INSERT INTO blob_deletions (digest, at, sweeper, under_way) VALUES ('b10b', 1790000000005, 'node', TRUE);
INSERT INTO env (id, site_id, key, value, secret, target, scope, created_at, updated_at) VALUES ('env_2', 'site_1', 'API_URL', 'sealed', TRUE, 'build,preview', 'preview', 1790000000000, 1790000000000);
INSERT INTO git_settings (site_id, hook_digest, hook_sealed, secret, auto_deploy, previews, watch, provider, last_event, last_event_at) VALUES
  ('site_1', 'digest', 'sealed', 'sealed', TRUE, 'branches', '["docs/**"]', 'github', 'push to main: deployed', 1790000000005);
INSERT INTO git_deliveries (site_id, digest, seq) VALUES ('site_1', 'd1', '01');
INSERT INTO idempotency_usage (owner_id, answers, bytes) VALUES ('own__a', 1, 6);
INSERT INTO job_kinds (node, kind, lease_until) VALUES ('node1', 'deploy.run', 1790000000005);
INSERT INTO operations (id, owner_id, site_id, kind, uniq, status, progress, step, message, error, result, created_at, completed_at) VALUES
  ('op_1', 'own__a', 'site_1', 'site.restart', 'restart/site_1', 'running', 500, '1', 'Restarting', '', '', 1790000000005, 0);
INSERT INTO preview_hosts (site_id, branch, label, deployment_id, release, used_at) VALUES ('site_1', 'feature', 'feature-abc', 'dep_2', 'rel2', 1790000000005);
INSERT INTO release_holds (release, until) VALUES ('rel2', 1990000000000);
INSERT INTO site_serving (site_id, settings) VALUES ('site_1', '{"forward":["api.example.com"]}');
INSERT INTO site_starts (owner_id, day, n) VALUES ('own__a', 20717, 2);
INSERT INTO totp_offers (hash, user_id, session_id, secret, created_at, expires_at) VALUES ('offer1', 'user_a', 'ses_a', 'sealed', 1790000000000, 1990000000000);
INSERT INTO webhook_hours (hook_id, hour, succeeded, failed) VALUES ('wh_1', 497222, 1, 0);
