-- +goose Up

-- The edge also learns who owns a site: what visitors share is divided between owners first.
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
         live_version AS version
  FROM sites;
