-- +goose Up

-- Written by package audit: the app that acted for the user. Its grant may be gone.
ALTER TABLE audit ADD COLUMN app_id TEXT NOT NULL DEFAULT '';
UPDATE audit SET app_id = COALESCE((SELECT g.app_id FROM oauth_grants g WHERE g.id = audit.grant_id), '') WHERE grant_id <> '';
CREATE INDEX audit_app ON audit (app_id, id) WHERE app_id <> '';
