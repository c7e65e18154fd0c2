package framework

import (
	"slices"
	"testing"
)

// A .htaccess that closes its whole folder closes it, in the syntax of Apache 2.2 and 2.4 and as in public
// applications. One that closes only a part, or only for some clients, doesn't close the whole folder.
func TestReadApache(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]apacheRules{
		"Require all denied":    {whole: true},
		"  deny   FROM all\r\n": {whole: true},
		"# Deny from all":       {},
		"Deny from 192.0.2.1":   {},
		"Require all granted":   {},
		"Order deny,allow\nDeny from all\nAllow from 127.0.0.1":                                                                    {whole: true},
		"<IfModule mod_authz_core.c>\nRequire all denied\n</IfModule>\n<IfModule !mod_authz_core.c>\nDeny from all\n</IfModule>\n": {whole: true},
		"<Files \"keys.txt\">\nDeny from all\n</Files>":                                                                            {closed: []string{"keys.txt"}},
		"<FilesMatch \"\\.log$\">\nRequire all denied\n</FilesMatch>":                                                              {},
		"<Limit POST>\n<IfModule a>\nDeny from all\n</IfModule>\n</Limit>":                                                         {},
		"AuthType Basic\nAuthName x\nRequire valid-user":                                                                           {whole: true},
		"RewriteRule ^(\\.git|cache|bin|webserver-configs)/(.*) error [F]":                                                         {closed: []string{".git", "cache", "bin", "webserver-configs"}},
		"RewriteRule ^content/(.*) index.php [L]\nRewriteRule ^(.*)$ index.php?/$1 [L]":                                            {closed: []string{"content"}, front: "index.php"},
		"RewriteRule ^data/ - [L,R=404]":                                                                                           {closed: []string{"data"}},
		"RewriteCond %{HTTP_HOST} ^x\nRewriteRule ^data/ - [F]":                                                                    {},
		"RewriteRule ^(system|vendor)/(.*)\\.(txt|md)$ error [F]":                                                                  {},
		"RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule . /app.php [L]":                                                          {front: "app.php"},
		"FallbackResource /front.php":                                                                                              {front: "front.php"},
		"</Files>\n<Files":                                                                                                         {},
	} {
		if got := readApache(text); got.whole != want.whole || got.front != want.front || !slices.Equal(got.closed, want.closed) {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
