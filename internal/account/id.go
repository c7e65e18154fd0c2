package account

// ID names a user: "usr_" and 26 characters. It is the owner of everything a user has.
type ID string
