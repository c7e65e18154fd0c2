-- A small installation as the program with schema version 14 left it: two users, three
-- sites, and at least one row in every table.
INSERT INTO users (id, email, password, admin, created_at, suspended_at, suspended_why) VALUES
  ('user_a', 'ada@example.com', '$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA', TRUE, 1790000000000, 0, ''),
  ('user_b', 'bob@example.com', '', FALSE, 1790000001000, 1790000002000, 'unpaid');
INSERT INTO setup_links (hash, user_id, expires_at, mailed) VALUES ('setup1', 'user_b', 1990000000000, TRUE), ('setup2', NULL, 1990000000000, FALSE);
INSERT INTO api_keys (id, owner_id, hash, hint, name, scopes, sites, nets, expires_at, created_at, used_at, used_addr) VALUES
  ('key_a', 'user_a', 'keyhash1', 'slip_ab', 'ci', 'sites:read deployments:write', 'site_1', '192.0.2.0/24', 0, 1790000000000, 1790000000001, '192.0.2.1');
INSERT INTO sessions (hash, id, user_id, method, pending, agent, addr, created_at, proven_at, seen_at, expires_at) VALUES
  ('sessionhash', 'ses_a', 'user_a', 'password', FALSE, 'Firefox', '192.0.2.1', 1790000000000, 1790000000000, 1790000000000, 1990000000000);
INSERT INTO second_factors (user_id, secret, confirmed, last_step, created_at) VALUES ('user_a', 'sealed', TRUE, 59, 1790000000000);
INSERT INTO recovery_codes (hash, user_id, created_at) VALUES ('recovery1', 'user_a', 1790000000000);
INSERT INTO passkeys (id, user_id, credential, record, name, created_at, used_at) VALUES ('pk_a', 'user_a', 'Y3JlZA', '{"id":"Y3JlZA"}', 'Laptop', 1790000000000, 0);
INSERT INTO ceremonies (hash, user_id, record, expires_at) VALUES ('ceremony1', '', '{}', 1990000000000);
INSERT INTO audit (id, at, user_id, about, key_id, session_id, addr, action, subject, detail, via) VALUES
  ('aud_1', 1790000000000, 'user_a', '', 'key_a', '', '192.0.2.1', 'site.created', 'site_1', 'Blog', 'ci'),
  ('aud_2', 1790000000001, 'user_a', 'user_b', '', 'ses_a', '192.0.2.1', 'user.suspended', 'user_b', 'unpaid', '');
INSERT INTO site_counts (owner_id, type, status, n) VALUES ('user_a', 'static', 'active', 1), ('user_a', 'static', 'pending', 1), ('user_b', 'wordpress', 'error', 1);
INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build, credential, needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at, search) VALUES
  ('site_1', 'user_a', 'Blog', 'blog', 'static', 'static', 'active', '', 'git.example.com/ada/blog', 'main', 'vite', '{"command":"npm run build"}', 'sealed', TRUE, 'dep_1', 'rel1', 4, 1790000000000, 1790000000000, 0, 'blog blog git.example.com/ada/blog'),
  ('site_2', 'user_a', 'New', 'new', 'static', 'static', 'pending', '', '', '', '', '{}', '', FALSE, '', '', 2, 1790000000000, 1790000000000, 0, 'new new '),
  ('site_3', 'user_b', 'Shop', 'shop', 'wordpress', 'wordpress', 'error', 'WordPress is not available', '', '', '', '{}', '', FALSE, '', '', 3, 1790000000000, 1790000000000, 0, 'shop shop '),
  ('site_4', 'user_a', 'Old', 'old', 'static', 'static', 'active', '', '', '', '', '{}', '', FALSE, '', '', 1, 1790000000000, 1790000000000, 1790000005000, 'old old ');
INSERT INTO slugs (slug, owner_id, site_id, released_at) VALUES ('blog', 'user_a', 'site_1', 0), ('new', 'user_a', 'site_2', 0), ('shop', 'user_b', 'site_3', 0), ('old', 'user_a', '', 1790000005000);
INSERT INTO env (id, site_id, key, value, secret, target, created_at, updated_at) VALUES ('env_1', 'site_1', 'API_URL', 'sealed', FALSE, 'build,runtime', 1790000000000, 1790000000000);
INSERT INTO deploy_hooks (digest, sealed, site_id, owner_id, name, branch, any_branch, active, triggered_at, triggered, last_deployment, created_at) VALUES
  ('hookdigest', 'sealed', 'site_1', 'user_a', 'cms', 'main', FALSE, TRUE, 1790000000000, 3, 'dep_1', 1790000000000);
UPDATE live_version SET n = 4 WHERE id = 1;
INSERT INTO deployments (id, site_id, owner_id, label, status, cause, branch, title, clear_cache, commit_hash, commit_message, commit_author, framework, plan, release, runtime, rollback_of, error, stages, attempt, cancel, created_at, started_at, completed_at) VALUES
  ('dep_1', 'site_1', 'user_a', 'dep1label', 'success', 'provision', 'main', '', FALSE, 'c0ffee', 'First', 'Ada', 'vite', '{}', 'rel1', 'static', '', '', '[]', 1, '', 1790000000000, 1790000000001, 1790000000002),
  ('dep_2', 'site_1', 'user_a', 'dep2label', 'failed', 'hook', 'feature', 'Try', TRUE, '', '', '', '', '{}', '', 'static', '', 'npm run build: exit status 1', '[]', 2, '', 1790000000003, 1790000000004, 1790000000005),
  ('dep_3', 'site_1', 'user_a', 'dep3label', 'pending', 'api', 'main', '', FALSE, '', '', '', '', '{}', '', 'static', '', '', '[]', 0, '', 1790000000006, 0, 0);
INSERT INTO deployment_logs (deployment_id, n, at, level, stage, message, raw) VALUES ('dep_1', 1, 1790000000001, 'info', 'build', 'done', '');
INSERT INTO build_uids (uid, site_id, released_at) VALUES (200001, 'site_1', 0);
INSERT INTO portraits (release, title, text, colour, icon, image, made_at) VALUES ('rel1', 'Blog', 'Words', '#336699', '', '', 1790000000002);
INSERT INTO traffic (site_id, span, at, ok, redirected, client_errors, server_errors, pages, bytes) VALUES ('site_1', 300000, 1790000100000, 5, 1, 2, 0, 4, 12345);
INSERT INTO webhooks (id, owner_id, url, events, secret, generated, active, reason, failing_since, failures, turn_at, created_at, updated_at) VALUES
  ('wh_1', 'user_a', 'https://hooks.example.com/a', 'deployment.completed deployment.failed', 'sealed', TRUE, TRUE, '', 0, 0, 1790000000000, 1790000000000, 1790000000000),
  ('wh_2', 'user_a', 'https://hooks.example.com/b', 'site.created', 'sealed', FALSE, FALSE, 'gone', 1790000000000, 3, 1790000000000, 1790000000000, 1790000000000);
INSERT INTO webhook_events (id, owner_id, name, body, created_at) VALUES ('evt_1', 'user_a', 'deployment.completed', '{"type":"deployment.completed"}', 1790000000002);
INSERT INTO webhook_deliveries (id, event_id, hook_id, state, claims, failures, next_at, lease_until, created_at, finished_at) VALUES
  ('whd_1', 'evt_1', 'wh_1', 'succeeded', 1, 0, 0, 0, 1790000000002, 1790000000003),
  ('whd_2', 'evt_1', 'wh_2', 'pending', 2, 1, 1990000000000, 0, 1790000000002, 0);
INSERT INTO webhook_attempts (delivery_id, n, started_at, duration, status, error, answer, late) VALUES ('whd_1', 1, 1790000000002, 30, 200, '', 'ok', FALSE), ('whd_2', 1, 1790000000002, 10000, 0, 'timeout', '', FALSE);
INSERT INTO domains (id, owner_id, site_id, name, zone, status, reason, is_primary, redirect_to, proof, proven_at, findings, checks, tries, pending_at, ssl_status, cert_issuer, cert_expires_at, cert_error, created_at, updated_at) VALUES
  ('dom_1', 'user_a', 'site_1', 'blog.example.com', 'example.com', 'active', '', TRUE, '', 'txt', 1790000000000, '{}', 3, 0, 0, 'active', 'Example CA', 1990000000000, '', 1790000000000, 1790000000000),
  ('dom_2', 'user_a', 'site_1', 'www.blog.example.com', 'example.com', 'pending', 'no record', FALSE, 'blog.example.com', '', 0, '{}', 1, 1, 1790000000000, 'pending', '', 0, '', 1790000000000, 1790000000000);
INSERT INTO domain_tokens (owner_id, token) VALUES ('user_a', 'slipway-abc');
INSERT INTO domain_releases (name, owner_id, lost, released_at) VALUES ('gone.example.com', 'user_a', FALSE, 1790000000000);
INSERT INTO domain_routes (host, site_id, redirect_to, state, version, changed_at) VALUES ('blog.example.com', 'site_1', '', 'active', 4, 1790000000000);
INSERT INTO rdap_bootstrap (id, body, fetched_at) VALUES (1, '{"services":[]}', 1790000000000);
INSERT INTO authority (id, certificate, private_key, created_at) VALUES ('local', '-----BEGIN CERTIFICATE-----', 'sealed', 1790000000000);
INSERT INTO rate_windows (key, n, ends_at) VALUES ('key_a', 3, 1790000060000);
INSERT INTO idempotent_answers (scope, method, path, key, fingerprint, answer, created_at) VALUES ('user_a', 'POST', '/api/v1/sites', 'k1', 'ff', 'sealed', 1790000000000);
INSERT INTO certificates (host, kind, route, state, material, issuer, not_before, not_after, next_at, version, changed_at) VALUES ('blog.example.com', 'custom', 4, 'active', 'certificates/ca/blog.example.com', 'Example CA', 1790000000000, 1990000000000, 1980000000000, 1, 1790000000000);
UPDATE certificate_version SET n = 1 WHERE id = 1;
INSERT INTO acme_storage (key, value, size, modified) VALUES ('acme/ca/users/default/default.key', 'sealed', 227, 1790000000000);
INSERT INTO acme_locks (name, holder, until) VALUES ('issue_cert_blog.example.com', 'node', 1790000000000);
INSERT INTO acme_challenges (token, host, kind, answer, until) VALUES ('token1', 'blog.example.com', 'http-01', 'token1.thumb', 1790000000000);
INSERT INTO acme_ledger (id, ca, host, zone, kind, at) VALUES ('led_1', 'ca', 'blog.example.com', 'example.com', 'issued', 1790000000000);
INSERT INTO jobs (id, kind, queue, args, uniq, grp, share, state, attempt, failures, run_at, lease_until, canceled, error, created_at) VALUES
  ('job_1', 'deploy.run', 'deploy', '{"Deployment":"dep_3"}', 'deploy/dep_3', 'site/site_1', 'user_a', 'ready', 0, 0, 1790000000006, 0, FALSE, '', 1790000000006),
  ('job_2', 'deploy.collect', 'default', '{}', 'deploy.collect', NULL, '', 'dead', 3, 2, 1790000000006, 0, FALSE, 'disk full', 1790000000006);
