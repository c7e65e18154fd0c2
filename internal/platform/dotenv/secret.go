package dotenv

import "regexp"

// Patterns of names and values that are secret by default. Browsers evaluate them as well, so they must mean the same
// in RE2 and JavaScript.
const (
	SecretName = `(^|_)(API)?(KEYS?|TOKENS?|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|DSN|CREDENTIALS?|SALT)(_|$)|` +
		`(_PASS|_PWD|[A-Z]PASSWORD|[A-Z]SECRET|[A-Z]TOKEN|(DATABASE|REDIS|MONGO|MONGODB|POSTGRES|MYSQL|AMQP)_UR[IL])$`
	PublicName  = `(^|_)PUBLIC(_|$)|^(VITE|REACT_APP|GATSBY)_`
	SecretValue = `^[A-Za-z][A-Za-z0-9+.-]*://[^/@:?#]*:[^/@?#]+@|-----BEGIN [A-Z ]*PRIVATE KEY-----`
)

var (
	secretName  = regexp.MustCompile(`(?i)` + SecretName)
	publicName  = regexp.MustCompile(`(?i)` + PublicName)
	secretValue = regexp.MustCompile(SecretValue)
)

// Secret reports whether a variable probably holds a credential. Variables that bundlers publish to visitors don't
// count.
func Secret(key, value string) bool {
	return secretName.MatchString(key) && !publicName.MatchString(key) || secretValue.MatchString(value)
}
