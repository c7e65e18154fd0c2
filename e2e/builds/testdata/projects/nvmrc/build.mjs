import { mkdirSync, writeFileSync } from 'node:fs'
import { marked } from 'marked'

mkdirSync('dist', { recursive: true })
writeFileSync('dist/index.html', marked.parse(`Node *${process.version}*`))
