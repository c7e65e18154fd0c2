-- +goose Up

-- updated is when a site last changed, its variables included: package app asks again then what its program is started with.
DROP VIEW run_settings;
CREATE VIEW run_settings AS SELECT s.id AS site_id, s.run, COALESCE(w.revision, 0) AS revision, s.updated_at AS updated
  FROM sites s LEFT JOIN wordpress_sites w ON w.site_id = s.id;
