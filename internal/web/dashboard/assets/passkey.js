// Passkeys: asks the server what to sign, lets the browser sign it, and sends the answer
// as an ordinary form.
'use strict';
(() => {
  const able = window.PublicKeyCredential && PublicKeyCredential.parseRequestOptionsFromJSON && PublicKeyCredential.parseCreationOptionsFromJSON && navigator.credentials;
  if (!able) return;
  for (const el of document.querySelectorAll('[data-passkey-off]')) el.hidden = true;
  for (const f of document.querySelectorAll('form[data-passkey]')) {
    f.hidden = false;
    const says = f.querySelector('[data-passkey-says]');
    const tell = (text) => { says.textContent = text; says.hidden = !text; };
    f.addEventListener('submit', async (e) => {
      if (f.elements.response.value) return; // signed: let it go
      e.preventDefault();
      tell('');
      try {
        const r = await fetch(f.dataset.passkey, { method: 'POST', headers: { Accept: 'application/json' } });
        const body = await r.json();
        if (!r.ok) { tell(body.error + (body.details ? ': ' + body.details : '')); return; }
        const create = f.dataset.passkeyKind === 'create';
        const made = create
          ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(body.options) })
          : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(body.options) });
        f.elements.token.value = body.token;
        f.elements.response.value = JSON.stringify(made.toJSON());
        f.requestSubmit();
      } catch (err) {
        tell(err.name === 'NotAllowedError' ? 'Cancelled, or it took too long. Try again.'
          : err.name === 'InvalidStateError' ? 'This device has a passkey for you already.'
          : 'The browser says: ' + err.message);
      }
    });
  }
})();
