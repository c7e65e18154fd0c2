-- +goose Up

-- A team's sign-in provider vouches for its team alone. Keys and grants remember the provider of the session that made
-- them: they work while the provider is there and their user is linked to it. Empty: the session came another way.
ALTER TABLE api_keys ADD COLUMN provider_id TEXT NOT NULL DEFAULT '';
ALTER TABLE oauth_grants ADD COLUMN provider_id TEXT NOT NULL DEFAULT '';
ALTER TABLE oauth_codes ADD COLUMN provider_id TEXT NOT NULL DEFAULT '';
ALTER TABLE oauth_devices ADD COLUMN provider_id TEXT NOT NULL DEFAULT '';

-- Whose each provider is; '' is the operator's.
CREATE VIEW sign_in_providers AS SELECT id, owner_id FROM sso_providers;

-- Who is linked to which provider of a team.
CREATE VIEW team_links AS
  SELECT p.id AS provider_id, i.owner_id, i.user_id
  FROM sso_identities i JOIN sso_providers p ON p.owner_id = i.owner_id AND p.issuer = i.issuer
  WHERE i.owner_id <> '';

-- The teams that require two-factor authentication.
CREATE VIEW two_factor_teams AS SELECT owner_id FROM teams WHERE require_2fa AND deleted_at = 0;

-- Who can sign in by a provider of the operator's. One of a team opens that team alone.
DROP VIEW provided_users;
CREATE VIEW provided_users AS
  SELECT i.user_id FROM sso_identities i JOIN sso_providers p ON p.owner_id = i.owner_id AND p.issuer = i.issuer
  WHERE i.owner_id = '';
