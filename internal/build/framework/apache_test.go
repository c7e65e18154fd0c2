package framework

import (
	"slices"
	"testing"
)

// What a .htaccess closes as a whole is closed, in the words of either version of Apache and of the programs that ship one;
// what it closes in part, or only for some, is nothing that could be taken as a whole.
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
