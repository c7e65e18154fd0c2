-- +goose Up

-- The edge's contract for addresses below a site's own: <label>--<subdomain>. A label is
-- a deployment's, which lasts as long as its release, or a branch's, which serves the
-- branch's newest preview.
DROP VIEW previews;
CREATE VIEW previews AS
  SELECT d.label AS label, s.slug AS host_label, d.release AS release,
         CASE WHEN d.runtime IN ('', 'static') THEN 'files' ELSE 'program' END AS backend,
         '' AS node
  FROM deployments d JOIN sites s ON s.id = d.site_id
  WHERE d.release <> '' AND s.deleted_at = 0 AND s.status <> 'stopped'
  UNION ALL
  SELECT p.label, s.slug, p.release,
         CASE WHEN d.runtime IN ('', 'static') THEN 'files' ELSE 'program' END,
         ''
  FROM preview_hosts p JOIN sites s ON s.id = p.site_id JOIN deployments d ON d.id = p.deployment_id
  WHERE p.release <> '' AND s.deleted_at = 0 AND s.status <> 'stopped';
