-- +goose Up

-- Rises with each change of the settings that a WordPress reads when it starts: package app
-- starts one that runs anew where it began with another.
ALTER TABLE wordpress_sites ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
DROP VIEW run_settings;
CREATE VIEW run_settings AS SELECT s.id AS site_id, s.run, COALESCE(w.revision, 0) AS revision
  FROM sites s LEFT JOIN wordpress_sites w ON w.site_id = s.id;
