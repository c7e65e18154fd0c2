package configfile

import (
	"strings"
	"testing"
)

func TestCheckTOML(t *testing.T) {
	t.Parallel()
	floats := strings.TrimSuffix(strings.Repeat("1.5, ", 200), ", ")
	for name, tt := range map[string]struct {
		src string
		ok  bool
	}{
		"usual":               {"[build]\ncommand = \"a.b.c\" # [[[[\n[[redirects]]\nfrom = \"/x\"\nquery = {a = \"b\"}\n", true},
		"a list of floats":    {"a = [" + floats + "]\n", true},
		"brackets in strings": {"a = '" + strings.Repeat("[", 500) + "'\nb = '''\n" + strings.Repeat("{[", 500) + "\n'''\n", true},
		"quotes at the end":   {"a = '''x'''''\nb = \"\"\"\\\"\"\"\"\n" + "c = 1\n", true},
		"many tables":         {strings.Repeat("[a.b.c]\nx = 1\n", 1000), true},
		"arrays":              {"a = " + strings.Repeat("[", 17) + strings.Repeat("]", 17), false},
		"over lines":          {"a = " + strings.Repeat("[\n", 17) + strings.Repeat("]\n", 17), false},
		"inline tables":       {strings.Repeat("a = {", 17) + strings.Repeat("}", 17), false},
		"dotted key":          {strings.Repeat("a.", 17) + "a = 1", false},
		"header":              {"[" + strings.Repeat("a.", 17) + "a]", false},
		"array of tables":     {"[[" + strings.Repeat("a.", 17) + "a]]", false},
		"quoted dotted key":   {strings.Repeat(`"a".`, 17) + "a = 1", false},
		"all three":           {"[a.b.c.d.e.f]\ng.h.i.j.k = {l.m.n.o.p = [[1]]}", false},
		"after a string":      {"s = \"\"\"\n'\n\"\"\"\na = " + strings.Repeat("[", 17), false},
		"keys":                {strings.Repeat("a=1\n", MaxKeys+1), false},
		"tables":              {strings.Repeat("[a]\n", MaxKeys+1), false},
	} {
		if err := CheckTOML(tt.src); (err == nil) != tt.ok {
			t.Errorf("%s: CheckTOML = %v", name, err)
		}
	}
}
