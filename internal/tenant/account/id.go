package account

// UserID names a user, somebody who signs in: "usr_" and 26 characters.
type UserID string

// OwnerID names what sites, domains, webhooks and keys belong to: "own_" and 26
// characters. Today each owner is one user's personal account.
type OwnerID string

// Topic returns the topic that wakes those who show an owner's things (db.DB.Listen). Whoever changes
// one of them notifies it; the changes of others wake nobody.
func (id OwnerID) Topic() string { return "owner/" + string(id) }
