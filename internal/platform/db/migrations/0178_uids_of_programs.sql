-- +goose Up

-- Written by package build: the uid owns files of the site's programs, which stay while the site
-- sleeps. It is the site's until that is deleted.
ALTER TABLE build_uids ADD COLUMN has_files BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE build_uids SET has_files = TRUE
WHERE released_at = 0 AND EXISTS (SELECT 1 FROM deployments d WHERE d.site_id = build_uids.site_id AND d.runtime NOT IN ('', 'static'));
