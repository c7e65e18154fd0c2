-- +goose Up

-- Written by package applog: what programs print, as far as it is kept.
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

-- What a deployment's program runs from; empty: it has none, or it is no longer stored.
ALTER TABLE deployments ADD COLUMN bundle TEXT NOT NULL DEFAULT '';

-- How a site's program is run: JSON, settings of the owner.
ALTER TABLE sites ADD COLUMN run TEXT NOT NULL DEFAULT '{}';

-- The edge also learns which deployment an address belongs to: its program is found by it.
DROP VIEW previews;
CREATE VIEW previews AS
  SELECT d.label AS label, s.slug AS host_label, d.release AS release, d.id AS deployment_id,
         CASE WHEN d.runtime IN ('', 'static') THEN 'files' ELSE 'program' END AS backend,
         '' AS node
  FROM deployments d JOIN sites s ON s.id = d.site_id
  WHERE d.release <> '' AND s.deleted_at = 0 AND s.status <> 'stopped'
  UNION ALL
  SELECT p.label, s.slug, p.release, p.deployment_id,
         CASE WHEN d.runtime IN ('', 'static') THEN 'files' ELSE 'program' END,
         ''
  FROM preview_hosts p JOIN sites s ON s.id = p.site_id JOIN deployments d ON d.id = p.deployment_id
  WHERE p.release <> '' AND s.deleted_at = 0 AND s.status <> 'stopped';
