-- +goose Up

-- The edge also learns which kind of program answers: the backend of either is a program, as
-- versions before this one know it.
DROP VIEW live;
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

DROP VIEW previews;
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
