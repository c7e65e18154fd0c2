-- +goose Up

-- The edge's contract: which host answers with what. backend says what kind of thing
-- answers while the state is live: files (the release itself) or program (one that runs
-- from it). node says where that is; empty: on any node, because files are everywhere.
DROP VIEW live;
CREATE VIEW live AS
  SELECT slug AS host_label, id AS site_id, live_release AS release, live_deployment AS deployment_id,
         CASE WHEN deleted_at > 0        THEN 'deleted'
              WHEN status = 'stopped'    THEN 'stopped'
              WHEN live_release <> ''    THEN 'live'
              WHEN status = 'error'      THEN 'error'
              ELSE 'empty' END AS state,
         CASE WHEN runtime IN ('', 'static') THEN 'files' ELSE 'program' END AS backend,
         '' AS node,
         live_version AS version
  FROM sites;

-- The same for the immutable address of a deployment.
DROP VIEW previews;
CREATE VIEW previews AS
  SELECT d.label AS label, s.slug AS host_label, d.release AS release,
         CASE WHEN d.runtime IN ('', 'static') THEN 'files' ELSE 'program' END AS backend,
         '' AS node
  FROM deployments d JOIN sites s ON s.id = d.site_id
  WHERE d.release <> '' AND s.deleted_at = 0 AND s.status <> 'stopped';
