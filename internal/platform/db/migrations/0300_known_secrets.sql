-- +goose Up

-- The addresses and secrets of an owner that members with the role developer can read; site_id is empty for what concerns all sites.
CREATE VIEW known_secrets AS
  SELECT h.owner_id, 'deploy_hook' AS kind, h.name AS name, h.site_id AS site_id, s.name AS site
  FROM deploy_hooks h JOIN sites s ON s.id = h.site_id WHERE s.deleted_at = 0
  UNION ALL
  SELECT s.owner_id, 'git_hook', '', s.id, s.name
  FROM git_settings g JOIN sites s ON s.id = g.site_id WHERE g.hook_digest <> '' AND s.deleted_at = 0
  UNION ALL
  SELECT owner_id, 'webhook', host, '', '' FROM webhooks WHERE deleted_at = 0 AND expires_at = 0;
