-- +goose Up

-- Which deployments the stable addresses of previews serve: package deploy keeps those.
CREATE VIEW shown_previews AS
SELECT site_id, branch, label, deployment_id FROM preview_hosts WHERE deployment_id <> '';
