// The progress of a form's file. Without scripts the browser sends the form, and shows its own.
(() => {
  const size = (n) => n < 1e6 ? Math.round(n / 1e3) + ' kB' : n < 1e9 ? (n / 1e6).toFixed(1) + ' MB' : (n / 1e9).toFixed(2) + ' GB';
  for (const form of document.querySelectorAll('form[data-upload]')) {
    const box = form.querySelector('[data-upload-progress]'), bar = box.querySelector('progress'), text = box.querySelector('output');
    const send = form.querySelector('button:not([type="button"])'), cancel = form.querySelector('[data-upload-cancel]');
    let sending = null;
    const end = (why) => {
      sending = null;
      send.disabled = false;
      cancel.hidden = bar.hidden = true;
      text.textContent = why;
    };
    form.addEventListener('submit', (e) => {
      e.preventDefault();
      if (sending) return;
      const data = new FormData(form);
      const x = sending = new XMLHttpRequest();
      send.disabled = true;
      box.hidden = cancel.hidden = bar.hidden = false;
      bar.value = 0;
      text.textContent = 'Uploading…';
      x.upload.addEventListener('progress', (p) => {
        if (!p.lengthComputable) return;
        bar.value = p.loaded / p.total;
        text.textContent = p.loaded < p.total ? Math.floor(100 * bar.value) + ' % · ' + size(p.loaded) + ' of ' + size(p.total) : 'Uploaded. Starting the import…';
      });
      x.addEventListener('load', () => {
        if (x.status < 300) { sending = null; location.assign(x.responseURL); return; }
        let why = {};
        try { why = JSON.parse(x.responseText); } catch { /* not from us */ }
        end('Upload failed: ' + (why.error || 'status ' + x.status) + (why.details ? '. ' + why.details : ''));
      });
      x.addEventListener('error', () => end('Upload failed: the connection ended. Try again'));
      x.addEventListener('abort', () => end('Upload canceled'));
      x.open('POST', form.action);
      x.setRequestHeader('Accept', 'application/json');
      x.send(data);
    });
    cancel.addEventListener('click', () => { if (sending) sending.abort(); });
    window.addEventListener('beforeunload', (e) => { if (sending) e.preventDefault(); });
  }
})();
