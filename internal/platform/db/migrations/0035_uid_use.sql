-- +goose Up

-- Written by package build: when a site was last built under its uid, exact to a day. A
-- uid that was not used for a while may go to another site.
ALTER TABLE build_uids ADD COLUMN used_at BIGINT NOT NULL DEFAULT 0;
UPDATE build_uids SET used_at = COALESCE((SELECT MAX(d.created_at) FROM deployments d WHERE d.site_id = build_uids.site_id), released_at);
CREATE INDEX build_uids_used ON build_uids (used_at);
