package dotenv

import "regexp"

// The patterns of names and values that are secret by default. Browsers use the same ones while
// somebody types, so they hold nothing that RE2 and JavaScript read differently.
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

// Secret reports whether a variable looks as if it held a credential. Variables that bundlers put
// into what visitors download don't.
func Secret(key, value string) bool {
	return secretName.MatchString(key) && !publicName.MatchString(key) || secretValue.MatchString(value)
}
