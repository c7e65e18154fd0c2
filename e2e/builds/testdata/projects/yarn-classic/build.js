const fs = require('fs')
const { marked } = require('marked')

fs.mkdirSync('dist', { recursive: true })
fs.writeFileSync('dist/index.html', marked.parse('# Made with *yarn*') + `<p>${process.env.npm_config_user_agent}</p>`)
