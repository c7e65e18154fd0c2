const http = require('node:http')
http.createServer((req, res) => res.end(`http one for ${new URL(req.url, 'http://x').searchParams.get('name')}`)).listen(process.env.PORT)
