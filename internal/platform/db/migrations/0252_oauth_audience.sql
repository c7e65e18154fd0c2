-- +goose Up
-- Written by package oauth. Which resource tokens are for (RFC 8707). Empty: the API; /mcp: the MCP server.
ALTER TABLE oauth_codes ADD COLUMN audience TEXT NOT NULL DEFAULT '';
ALTER TABLE oauth_grants ADD COLUMN audience TEXT NOT NULL DEFAULT '';
