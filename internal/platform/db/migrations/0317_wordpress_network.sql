-- +goose Up

-- network says how a WordPress that is a network (multisite) tells its blogs apart: by a folder (subfolder) or by a host (subdomain).
-- Empty: it isn't one.
ALTER TABLE wordpress_sites ADD COLUMN network TEXT NOT NULL DEFAULT '';
