// Verifies webhook deliveries with the library that is named on the command line, as ../main.go does.
const { Webhook } = require(process.argv[2]);

for (const c of JSON.parse(require("fs").readFileSync(0))) {
  let letter = "y";
  try {
    new Webhook(c.Secret).verify(Buffer.from(c.Body, "base64"), c.Headers);
  } catch {
    letter = "n";
  }
  process.stdout.write(letter);
}
