
'use strict';
(() => {
  // Milliseconds between two updates, and until an answer counts as missing.
  const interval = 2000, replyTimeout = 5000;
  const $ = id => document.getElementById(id);
  const missing = '–';

  // ---- Text. Everything from the server becomes text of the document, and nothing else of it.

  const setText = (node, text) => {
    text = String(text);
    if (node.textContent !== text) node.textContent = text; // what is selected stays so
  };
  const make = (name, text) => {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const svg = name => document.createElementNS('http://www.w3.org/2000/svg', name);
  const setAttr = (node, name, value) => {
    value = String(value);
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  };

  // ---- Numbers

  const whole = new Intl.NumberFormat('en-US');
  const count = n => n === null || n === undefined ? missing : whole.format(n);
  const digits = n => n.toFixed(n < 9.995 ? 2 : n < 99.95 ? 1 : 0);
  const scaled = (n, step, units) => {
    let i = 0;
    while (n >= step * 0.9995 && i < units.length - 1) { n /= step; i++; }
    return (i === 0 && Number.isInteger(n) ? String(n) : digits(n)) + units[i];
  };
  const rate = n => n === null ? missing : scaled(n, 1000, ['', ' k', ' M', ' G', ' T']);
  const bytes = n => scaled(n, 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB']);
  const percent = x => x === null ? missing : (x * 100).toFixed(1) + ' %';
  const seconds = s => s === null ? missing
    : s < 1e-3 ? digits(s * 1e6) + ' µs' : s < 1 ? digits(s * 1e3) + ' ms' : digits(s) + ' s';
  const age = s => {
    s = Math.max(0, Math.floor(s));
    const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
    return d ? d + ' d ' + h + ' h' : h ? h + ' h ' + m + ' min' : m ? m + ' min ' + s % 60 + ' s' : s + ' s';
  };
  const two = n => String(n).padStart(2, '0');
  const clock = t => two(t.getHours()) + ':' + two(t.getMinutes()) + ':' + two(t.getSeconds());
  const when = text => {
    const t = new Date(text), day = t.getFullYear() + '-' + two(t.getMonth() + 1) + '-' + two(t.getDate());
    return t.toDateString() === new Date().toDateString() ? clock(t) : day + ' ' + clock(t);
  };

  // ---- Tables and lists. Rows and cells are reused, so that focus and selection stay.

  // fill sets the rows of a table's body. A column is {show: item => text, or draw: (cell, item)
  // which changes the cell; as: class, or item => class; head: whether it names the row}.
  const fill = (section, columns, items, mark) => {
    const body = section.querySelector('tbody');
    while (body.rows.length > items.length) body.deleteRow(-1);
    items.forEach((item, i) => {
      let row = body.rows[i];
      if (!row) {
        row = body.insertRow();
        for (const c of columns) {
          const cell = make(c.head ? 'th' : 'td');
          if (c.head) cell.scope = 'row';
          row.append(cell);
        }
      }
      if (mark) mark(row, item);
      columns.forEach((c, j) => {
        const cell = row.cells[j], as = typeof c.as === 'function' ? c.as(item) : c.as || '';
        if (cell.className !== as) cell.className = as;
        if (c.draw) c.draw(cell, item); else setText(cell, c.show(item));
      });
    });
    const empty = section.querySelector('.empty');
    if (empty) {
      empty.hidden = items.length > 0;
      section.querySelector('.scroll').hidden = items.length === 0;
    }
  };

  // list sets the terms of a section: [name, text, class of the text, class of both].
  const list = (section, terms) => {
    const dl = section.querySelector('dl');
    while (dl.children.length > terms.length) dl.lastElementChild.remove();
    terms.forEach(([name, text, as, both], i) => {
      let term = dl.children[i];
      if (!term) {
        term = make('div');
        term.append(make('dt'), make('dd'));
        dl.append(term);
      }
      setText(term.firstElementChild, name);
      setText(term.lastElementChild, text);
      term.lastElementChild.className = as || '';
      term.className = both || '';
    });
  };
  const number = (show, alert) => ({ show: o => count(show(o)), as: o => 'n' + (show(o) ? alert ? ' alert' : '' : ' zero') });

  // ---- The chart

  // drawTrend draws one column for each minute: tokens that hit from below, tokens that missed above.
  const minutes = 60, column = 3, trendHeight = 22;
  const drawTrend = (cell, pool) => {
    let node = cell.firstElementChild;
    if (!node) {
      node = svg('svg');
      for (const [k, v] of [['role', 'img'], ['width', minutes * column], ['height', trendHeight]]) node.setAttribute(k, v);
      for (const part of ['used', 'rest']) {
        const path = svg('path');
        path.setAttribute('class', part);
        node.append(path);
      }
      cell.append(node);
    }
    const points = pool.minutes;
    const max = Math.max(1, ...points.map(p => p.hit_tokens + p.miss_tokens));
    let hit = '', miss = '';
    points.forEach((p, i) => {
      const x = (minutes - points.length + i) * column, a = p.hit_tokens / max * trendHeight, b = p.miss_tokens / max * trendHeight;
      if (a > 0) hit += `M${x} ${trendHeight}v${(-a).toFixed(2)}h2v${a.toFixed(2)}z`;
      if (b > 0) miss += `M${x} ${(trendHeight - a).toFixed(2)}v${(-b).toFixed(2)}h2v${b.toFixed(2)}z`;
    });
    hit += `M0 ${trendHeight}h${minutes * column}v-.5h-${minutes * column}z`; // the axis
    setAttr(node.children[0], 'd', hit);
    setAttr(node.children[1], 'd', miss || 'M0 0');
    setAttr(node, 'aria-label', 'tokens that hit and missed in each minute of the last hour, at most ' + count(Math.round(max)) + ' tokens a minute');
  };

  // ---- The parts of the page

  const nameOf = name => name === '' ? 'own pool' : name;
  const fillOf = p => Math.max(p.max_bytes ? p.bytes / p.max_bytes : 0, p.max_entries ? p.entries / p.max_entries : 0);
  const isRemote = s => s.backend_state !== '';

  const poolColumns = [
    {
      head: true, draw: (cell, p) => {
        if (!cell.firstElementChild) cell.append(make('span'), make('small'));
        setText(cell.children[0], nameOf(p.name));
        setText(cell.children[1], [p.model_name, p.described ? 'described' : ''].filter(Boolean).join(', '));
        setAttr(cell, 'title', cell.children[0].textContent + ' ' + cell.children[1].textContent);
      },
    },
    { show: p => percent(p.recent.hit_ratio), as: 'n' },
    { draw: drawTrend },
    { show: p => rate(p.recent.tokens_per_second), as: 'n' },
    { show: p => rate(p.recent.lookups_per_second), as: 'n' },
    number(p => p.lookups),
    { show: p => p.max_bytes ? count(p.entries) : missing, as: 'n' },
    { show: p => p.max_bytes ? percent(fillOf(p)) : missing, as: 'n' },
    number(p => p.evicted),
    { show: p => p.vllm, as: 'zero' },
  ];

  const connectionColumns = [
    { head: true, show: c => c.peer },
    { show: c => (c.protocol || missing) + (c.tls ? ', TLS' : '') },
    { show: c => c.credential || missing, as: c => 'name' + (c.credential ? '' : ' zero') },
    { show: c => c.pool || missing, as: c => 'name' + (c.pool ? '' : ' zero') },
    number(c => c.requests), number(c => c.lookups), number(c => c.refused, true),
    { show: c => bytes(c.in_bytes), as: 'n' }, { show: c => bytes(c.out_bytes), as: 'n' },
    { show: c => age(c.idle_ms / 1000), as: 'n' },
    { show: c => c.listen, as: 'name zero' },
  ];

  const refusalColumns = [
    { head: true, show: r => when(r.time) },
    { show: r => r.event + (r.reason ? ': ' + r.reason : '') },
    { show: r => r.peer || missing, as: 'name' },
    { show: r => r.credential || missing, as: r => 'name' + (r.credential ? '' : ' zero') },
    { show: r => count(r.suppressed || 0), as: r => r.suppressed ? 'n' : 'n zero' },
    { show: r => r.error || missing, as: 'text' },
  ];

  // A stale source counts for nothing, an incomplete one for what its engine has said since.
  const stateOf = x => (x.stale ? 'stale, ' + x.state : x.complete ? x.state : x.state + ', incomplete') + (x.hashes === 'differ' ? ', hashes differ' : '');

  const sourceColumns = [
    { head: true, show: x => x.name }, { show: x => x.instance_id, as: 'name' }, { show: x => count(x.dp_rank), as: 'n' }, { show: x => x.model, as: 'name' },
    { show: stateOf, as: x => x.stale || x.hashes === 'differ' ? 'alert' : '' }, number(x => x.blocks), number(x => x.batches), number(x => x.gaps),
    { show: x => x.last_event ? when(x.last_event) : missing }, { show: x => x.last_error || missing, as: 'text' },
  ];

  const modelColumns = [
    { head: true, show: m => m.model }, { show: m => m.tenant_id, as: 'name' }, { show: m => m.pool === undefined ? missing : nameOf(m.pool), as: 'name' },
    { show: m => m.block_size ? count(m.block_size) : missing, as: 'n' }, number(m => m.holders), number(m => m.stale_holders, true),
    number(m => m.blocks), { show: m => bytes(m.bytes) + ' of ' + bytes(m.max_bytes) },
  ];

  const showSummary = s => {
    let tokens = 0, lookups = 0, hit = 0, known = false;
    for (const { recent } of s.pools) {
      if (recent.tokens_per_second === null) continue;
      known = true;
      tokens += recent.tokens_per_second;
      lookups += recent.lookups_per_second;
      hit += (recent.hit_ratio || 0) * recent.tokens_per_second;
    }
    setText($('sum-ratio'), percent(tokens > 0 ? hit / tokens : null));
    setText($('sum-tokens'), rate(known ? tokens : null));
    setText($('sum-lookups'), rate(known ? lookups : null));
    setText($('sum-p50'), seconds(s.latency.p50));
    setText($('sum-p99'), seconds(s.latency.p99));
    setText($('sum-connections'), count(s.stat.connections));
    setText($('sum-connections-note'), 'open, of at most ' + count(s.stat.max_connections));
  };

  const showBackend = s => {
    const t = s.stat;
    list($('backend'), isRemote(s) ? [
      ['Store', s.backend], ['Breaker', s.backend_state, s.backend_state === 'closed' ? '' : 'alert'],
      ['In flight', count(t.in_flight)], ['Calls', count(t.backend_rounds)], ['Keys', count(t.backend_keys)],
      ['Shared', count(t.backend_shared)], ['Remembered', count(t.remembered_lookups)], ['Errors', count(t.backend_errors)], ['Timeouts', count(t.backend_timeouts)],
      ['Rejected', count(t.backend_rejected)],
    ] : [
      ['Store', s.backend], ['Entries', count(t.entries) + (t.max_entries ? ' of ' + count(t.max_entries) : '')],
      ['Memory', bytes(t.bytes) + ' of ' + bytes(t.max_bytes)], ['Stored', count(t.stored)], ['Evicted', count(t.evicted)],
      ['Stores refused', count(t.refused)], ['Requests refused', count(t.failed)],
    ]);
  };

  const showSnapshot = s => {
    const n = s.snapshot;
    if (!n) {
      list($('snapshot'), [['State', 'off']]);
      return;
    }
    const terms = [['Last', n.written ? when(n.written) : 'none yet']];
    if (n.written) terms.push(['Entries', count(n.entries)], ['Size', bytes(n.bytes)], ['Took', seconds(n.seconds)]);
    terms.push(['Loaded', count(n.loaded_entries) + ' entries'], ['Failed', count(n.failed), n.failed ? 'alert' : '']);
    if (n.error) terms.push(['Error', n.error, 'alert', 'long']);
    if (n.load_error) terms.push(['Not loaded', n.load_error, 'alert', 'long']);
    terms.push(['File', n.path, '', 'long']);
    list($('snapshot'), terms);
  };

  const showRouter = s => {
    $('router').hidden = $('router-sources').hidden = !s.router;
    if (!s.router) return;
    fill($('router'), modelColumns, s.router.models, (row, m) => setAttr(row, 'data-model', m.model));
    fill($('router-sources'), sourceColumns, s.router.sources.list, (row, x) => setAttr(row, 'data-source', x.name));
    more($('router-sources-more'), s.router.sources.shown, s.router.sources.total, 'sources');
  };

  const more = (node, shown, total, what, note) => {
    node.hidden = shown >= total;
    setText(node, count(shown) + ' of ' + count(total) + ' ' + what + ' are listed.' + (note || ''));
  };

  const showPools = s => {
    fill($('pools'), poolColumns, s.pools, (row, p) => setAttr(row, 'data-pool', p.name));
    more($('pools-more'), s.pools.length, s.stat.pools, 'pools', ' The hit ratio, tokens and lookups at the top are of these alone.');
    const choice = $('explain-pool'), names = s.pools.map(p => p.name);
    if (JSON.stringify(names) === JSON.stringify([...choice.options].map(o => o.value))) return;
    const chosen = choice.value;
    choice.replaceChildren(...names.map(name => {
      const option = make('option', nameOf(name));
      option.value = name;
      return option;
    }));
    if (names.includes(chosen)) choice.value = chosen;
  };

  const showPeers = s => {
    $('connections').hidden = $('refusals').hidden = s.token_needed;
    if (s.token_needed) return;
    fill($('connections'), connectionColumns, s.connections.list);
    more($('connections-more'), s.connections.shown, s.connections.total, 'connections');
    fill($('refusals'), refusalColumns, s.refusals);
  };

  // ---- Updates

  let token = '', last = null, sequence = 0, timer = 0;

  const askToken = (needed, text) => {
    $('token-form').hidden = !needed;
    if (text) setText($('token-note'), text);
  };

  const show = s => {
    last = new Date();
    setText($('version'), s.version);
    setText($('instance'), s.instance);
    setText($('uptime'), age(s.uptime_seconds));
    setText($('updated'), clock(last));
    setAttr($('updated'), 'datetime', last.toISOString());
    showSummary(s);
    showPools(s);
    showBackend(s);
    showSnapshot(s);
    showRouter(s);
    showPeers(s);
    askToken(s.token_needed, token && s.token_needed ? 'This is not the token of an administrator of this server.' : '');
    setText($('ready'), s.ready ? 'ready' : 'not ready: ' + s.not_ready_reason);
    document.body.dataset.state = !s.ready ? 'not-ready' : s.token_needed ? 'token-needed' : 'ready';
    document.title = (s.ready ? '' : 'not ready – ') + 'hitline';
  };

  const showUnreachable = () => {
    document.body.dataset.state = 'unreachable';
    setText($('ready'), 'no answer' + (last ? ' since ' + clock(last) : '') + '; trying again');
    document.title = 'no answer – hitline';
  };

  // Headers are bytes: a token is sent as its UTF-8.
  const authorization = () => token ? { Authorization: 'Bearer ' + String.fromCharCode(...new TextEncoder().encode(token)) } : {};

  const request = async (path, options, limit) => {
    const abort = new AbortController(), end = setTimeout(() => abort.abort(), limit);
    try {
      const reply = await fetch(path, {
        cache: 'no-store', credentials: 'omit', redirect: 'error', signal: abort.signal, ...options,
        headers: { ...authorization(), ...options.headers },
      });
      return { status: reply.status, body: await reply.json() };
    } finally {
      clearTimeout(end);
    }
  };

  const update = async () => {
    clearTimeout(timer);
    const mine = ++sequence; // an answer that comes after a later request is not shown
    let reply = null;
    try {
      reply = await request('status', {}, replyTimeout);
    } catch {
      // The server does not answer, or not in JSON.
    }
    if (mine !== sequence) return;
    try {
      if (reply && reply.status === 200) show(reply.body); else showUnreachable();
    } finally { // an error of show, of which the console tells, does not end the updates
      if (!document.hidden) timer = setTimeout(update, interval);
    }
  };
  document.addEventListener('visibilitychange', () => { if (!document.hidden) update(); });

  $('token-form').addEventListener('submit', event => {
    event.preventDefault();
    token = $('token').value.trim();
    $('token').value = '';
    update();
  });

  // ---- Explain

  const why = {
    complete: () => 'All tokens that a hit may have.',
    missing_block: g => 'Block ' + count(g.first_missing_block) + ' is stored on no rank.',
    rank_missing: g => 'Block ' + count(g.first_missing_block) + ' is stored on some ranks only' + missingRanks(g) + '.',
    window_not_covered: () => 'A block of the window before the last token is missing.',
    alignment: () => 'What is stored was rounded down to the alignment.',
    eagle: () => 'The last block was dropped for the draft model.',
    hashes_end: () => 'There are too few hashes for the tokens.',
    nothing_asked: () => 'There are no tokens or no hashes.',
  };
  const missingRanks = g => {
    const r = g.missing_rank;
    if (!r) return '';
    return ': missing on tp_rank ' + r.tp_rank + ', pp_rank ' + r.pp_rank + ', pcp_rank ' + r.pcp_rank +
      (g.missing_ranks > 1 ? ' and ' + count(g.missing_ranks - 1) + ' more' : '');
  };
  const gap = g => g.gap_start === null || g.gap_end === null ? missing
    : g.gap_end === g.gap_start + 1 ? count(g.gap_start) : count(g.gap_start) + ' to ' + count(g.gap_end - 1);

  const groupColumns = [
    { head: true, show: g => count(g.group) }, { show: g => g.kind }, { show: g => count(g.end_tokens), as: 'n' }, { show: g => g.reason },
    { show: g => g.reason in why ? why[g.reason](g) : g.reason, as: 'text' }, { show: g => count(g.first_missing_block), as: 'n' }, { show: gap, as: 'n' },
  ];

  const showResult = (text, as, groups) => {
    const result = $('explain-result');
    setText(result.firstElementChild, text);
    result.firstElementChild.className = as;
    fill(result, groupColumns, groups);
    result.lastElementChild.hidden = groups.length === 0;
    result.hidden = false;
  };

  const showExplanation = e => showResult('Hit: ' + count(e.hit_tokens) + ' of ' + count(e.tokens) + ' tokens, by ' + count(e.hashes) + ' hashes of ' +
    count(e.hash_block_size) + ' tokens in ' + (e.pool ? 'pool ' + e.pool : 'the own pool') + '.', '', e.groups);

  const showProblem = text => showResult(text, 'alert', []);

  const explain = async () => {
    const tokens = $('explain-tokens').value.trim();
    const body = JSON.stringify({
      pool: $('explain-pool').value, hashes: $('explain-hashes').value.split(/[\s,;[\]"']+/).filter(Boolean), ...(tokens === '' ? {} : { tokens: Number(tokens) }),
    });
    try {
      const reply = await request('explain', { method: 'POST', body, headers: { 'Content-Type': 'application/json' } }, 4 * replyTimeout);
      if (reply.status === 200) showExplanation(reply.body);
      else showProblem(reply.status === 401 ? 'An explanation needs the token of an administrator: enter it at the top of the page.' : reply.body.error);
    } catch {
      showProblem('The server does not answer.');
    }
  };

  $('explain').addEventListener('submit', async event => {
    event.preventDefault();
    if ($('explain').ariaBusy === 'true') return;
    $('explain').ariaBusy = 'true'; // the button is not disabled: it would lose the focus
    await explain();
    $('explain').ariaBusy = 'false';
  });

  update();
})();
