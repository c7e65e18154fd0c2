const http = require('http')
const { WebSocketServer } = require('ws')
const version = 'one'
const server = http.createServer((req, res) => res.end(`chat ${version}`))
const chat = new WebSocketServer({ server, path: '/chat' })
chat.on('connection', one => {
  one.send(`welcome to ${version}`)
  one.on('message', text => { for (const other of chat.clients) other.send(`${version}: ${text}`) })
})
server.listen(process.env.PORT)
