-- +goose Up

-- Users with a linked account that a provider signs them in with: those of a provider that was removed let nobody in.
CREATE VIEW provided_users AS
  SELECT i.user_id FROM sso_identities i JOIN sso_providers p ON p.owner_id = i.owner_id AND p.issuer = i.issuer;
