package project

import (
	"path"

	"slipway/internal/platform/dotenv"
)

// exampleFiles lists files in which projects document their variables.
var exampleFiles = []string{
	".env.example", ".env.sample", ".env.template", ".env.dist", ".env.local.example", ".env.example.local", "example.env", "env.example",
	".env.development",
}

const maxExample = 64 << 10 // bytes

// Example returns the variables that the project's example file in the folder root lists, and the file's name; ""
// without one.
func Example(root string, read func(name string, most int64) ([]byte, error)) (file string, names []string) {
	for _, file := range exampleFiles {
		content, err := read(path.Join(root, file), maxExample)
		if err != nil {
			continue
		}
		pairs, err := dotenv.Parse(string(content))
		if err != nil {
			continue
		}
		for _, p := range pairs {
			if p.Key != "PORT" && p.Key != "HOST" && p.Key != "NODE_ENV" && len(p.Key) <= 60 {
				names = append(names, p.Key)
			}
		}
		if len(names) > 0 {
			return file, names
		}
	}
	return "", nil
}
