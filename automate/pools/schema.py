"""The tables of all processes, in one SQLite file; docs/pools-reference.md says which is whose.

Never opens a database. Times are integer milliseconds since 1970; money is in the token's smallest unit."""

from __future__ import annotations

VERSION = 1

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

CREATE TABLE processes (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('token', 'pool', 'router', 'dataset')),
  name TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  module TEXT NOT NULL DEFAULT '',
  settings TEXT NOT NULL DEFAULT '{}',
  ready INTEGER NOT NULL DEFAULT 0,
  created INTEGER NOT NULL
) STRICT;

CREATE TABLE messages (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  sender TEXT NOT NULL,
  target TEXT NOT NULL,
  action TEXT NOT NULL,
  tags TEXT NOT NULL,
  data TEXT,
  size INTEGER NOT NULL,
  digest TEXT NOT NULL,
  anchor TEXT NOT NULL,
  timestamp INTEGER NOT NULL,
  received INTEGER NOT NULL,
  handled INTEGER,
  via TEXT NOT NULL CHECK (via IN ('local', 'http', 'process', 'job', 'clock')),
  cause TEXT REFERENCES messages (id),
  root TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('queued', 'handled', 'refused', 'failed', 'delivered')),
  error TEXT
) STRICT;
CREATE INDEX messages_queued ON messages (seq) WHERE state = 'queued';
CREATE INDEX messages_root ON messages (root, target);
CREATE INDEX messages_cause ON messages (cause);

CREATE TABLE entries (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  message TEXT NOT NULL REFERENCES messages (id),
  account TEXT NOT NULL,
  other TEXT NOT NULL,
  amount INTEGER NOT NULL CHECK (amount <> 0)
) STRICT;
CREATE INDEX entries_account ON entries (account, seq);
CREATE INDEX entries_message ON entries (message);

CREATE TABLE balances (
  account TEXT PRIMARY KEY,
  amount INTEGER NOT NULL CHECK (amount >= 0 OR account = 'genesis')
) STRICT;

CREATE TABLE models (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  inference_process TEXT NOT NULL,
  data_tx TEXT NOT NULL,
  process TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  added INTEGER NOT NULL
);
CREATE INDEX models_owner ON models (owner);

CREATE TABLE pools (
  id TEXT PRIMARY KEY,
  dataset TEXT NOT NULL REFERENCES processes (id),
  funder TEXT NOT NULL,
  funds INTEGER NOT NULL CHECK (funds > 0),
  allocation TEXT NOT NULL,
  winners INTEGER NOT NULL CHECK (winners >= 1),
  grace INTEGER NOT NULL CHECK (grace >= 0),
  start_time INTEGER NOT NULL,
  end_time INTEGER NOT NULL CHECK (end_time > start_time),
  state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'paid', 'refunded')),
  settled INTEGER,
  settled_by TEXT REFERENCES messages (id),
  updated INTEGER
) STRICT;
CREATE INDEX pools_dataset ON pools (dataset, state);

CREATE TABLE pool_models (
  pool TEXT NOT NULL REFERENCES pools (id),
  model INTEGER NOT NULL REFERENCES models (id),
  participant TEXT NOT NULL,
  joined INTEGER NOT NULL,
  joined_by TEXT NOT NULL REFERENCES messages (id),
  score REAL NOT NULL DEFAULT 0,
  progress REAL NOT NULL DEFAULT 0,
  correct INTEGER NOT NULL DEFAULT 0,
  answered INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  total INTEGER NOT NULL DEFAULT 0,
  updated INTEGER,
  updated_by TEXT REFERENCES messages (id),
  PRIMARY KEY (pool, model)
) STRICT;
CREATE INDEX pool_models_model ON pool_models (model);

CREATE TABLE payouts (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  pool TEXT NOT NULL REFERENCES pools (id),
  kind TEXT NOT NULL CHECK (kind IN ('reward', 'dust', 'refund')),
  model INTEGER REFERENCES models (id),
  account TEXT NOT NULL,
  amount INTEGER NOT NULL CHECK (amount > 0),
  rank INTEGER,
  message TEXT NOT NULL REFERENCES messages (id)
) STRICT;
CREATE UNIQUE INDEX payouts_once ON payouts (pool, kind, COALESCE(model, 0));

CREATE TABLE questions (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  dataset TEXT NOT NULL REFERENCES processes (id),
  digest TEXT NOT NULL,
  context TEXT NOT NULL,
  question TEXT NOT NULL,
  options TEXT NOT NULL,
  result TEXT NOT NULL,
  added INTEGER NOT NULL,
  UNIQUE (dataset, digest)
);
CREATE INDEX questions_added ON questions (dataset, added);
CREATE VIEW datasets AS
  SELECT id, context, question, options ->> 0 AS answerA, options ->> 1 AS answerB, options ->> 2 AS answerC, result
  FROM questions WHERE json_array_length(options) = 3;

CREATE TABLE evaluations (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  dataset_id INTEGER NOT NULL,
  model_id INTEGER NOT NULL REFERENCES models (id),
  prompt TEXT NOT NULL,
  correct_answer TEXT NOT NULL,
  prediction TEXT,
  inference_start_time DATETIME,
  inference_end_time DATETIME,
  inference_reference TEXT UNIQUE,
  dataset TEXT NOT NULL REFERENCES processes (id),
  state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'started', 'answered', 'failed', 'expired')),
  attempts INTEGER NOT NULL DEFAULT 0,
  answer TEXT,
  worker TEXT,
  error TEXT,
  UNIQUE (dataset_id, model_id),
  FOREIGN KEY (dataset_id) REFERENCES questions (id)
);
CREATE INDEX evaluations_state ON evaluations (dataset, model_id, state);
CREATE INDEX evaluations_due ON evaluations (dataset, state, id);
CREATE INDEX evaluations_started ON evaluations (inference_start_time) WHERE state = 'started';

CREATE TABLE attempts (
  reference TEXT PRIMARY KEY,
  evaluation INTEGER NOT NULL REFERENCES evaluations (id),
  started INTEGER NOT NULL,
  ended INTEGER,
  outcome TEXT NOT NULL DEFAULT 'started' CHECK (outcome IN ('started', 'answered', 'failed', 'expired', 'unpaid')),
  answer TEXT,
  worker TEXT,
  message TEXT,
  payment TEXT,
  prompt TEXT
) STRICT;
CREATE INDEX attempts_evaluation ON attempts (evaluation);
CREATE INDEX attempts_payment ON attempts (payment) WHERE outcome = 'started';

CREATE TABLE strays (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  reference TEXT NOT NULL,
  sender TEXT NOT NULL,
  reason TEXT NOT NULL,
  message TEXT NOT NULL REFERENCES messages (id),
  received INTEGER NOT NULL
) STRICT;

CREATE TABLE workers (
  address TEXT PRIMARY KEY,
  model TEXT NOT NULL,
  fleet TEXT NOT NULL DEFAULT '',
  workload INTEGER NOT NULL DEFAULT 0 CHECK (workload >= 0),
  max_tokens INTEGER,
  system_prompt TEXT,
  registered INTEGER NOT NULL,
  unregistered INTEGER
) STRICT;

CREATE TABLE inferences (
  reference TEXT PRIMARY KEY,
  requester TEXT NOT NULL,
  dataset TEXT NOT NULL,
  request TEXT NOT NULL,
  model TEXT NOT NULL,
  prompt TEXT NOT NULL,
  method TEXT NOT NULL DEFAULT 'generate' CHECK (method IN ('generate', 'loglikelihood')),
  choices TEXT NOT NULL DEFAULT '[]',
  max_tokens INTEGER,
  worker TEXT,
  round TEXT,
  state TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('unpaid', 'queued', 'sent', 'answered', 'failed', 'cancelled')),
  price INTEGER NOT NULL DEFAULT 0,
  payment TEXT,
  received INTEGER NOT NULL,
  begun INTEGER,
  tries INTEGER NOT NULL DEFAULT 0,
  ended INTEGER,
  result TEXT
) STRICT;
CREATE TABLE rounds (
  round TEXT NOT NULL,
  model TEXT NOT NULL,
  heard INTEGER NOT NULL,
  PRIMARY KEY (round, model)
) STRICT;
CREATE INDEX inferences_unpaid ON inferences (requester, payment) WHERE state = 'unpaid';
CREATE INDEX inferences_worker ON inferences (worker) WHERE state IN ('queued', 'sent');
CREATE INDEX inferences_queue ON inferences (state, received);
CREATE INDEX inferences_round ON inferences (round);
CREATE INDEX inferences_waiting ON inferences (requester, price) WHERE state IN ('unpaid', 'queued', 'sent');
CREATE UNIQUE INDEX inferences_request ON inferences (requester, dataset, model, request);

CREATE TABLE refunds (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  inference TEXT UNIQUE REFERENCES inferences (reference),
  recipient TEXT NOT NULL,
  amount INTEGER NOT NULL CHECK (amount > 0),
  reason TEXT NOT NULL,
  reference TEXT NOT NULL DEFAULT '',
  state TEXT NOT NULL DEFAULT 'owed' CHECK (state IN ('owed', 'sent', 'paid')),
  batch TEXT,
  error TEXT,
  made INTEGER NOT NULL
) STRICT;
CREATE INDEX refunds_owed ON refunds (recipient) WHERE state = 'owed';
CREATE INDEX refunds_batch ON refunds (batch);

CREATE TABLE wishes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  model TEXT NOT NULL,
  message TEXT NOT NULL REFERENCES messages (id),
  asked INTEGER NOT NULL,
  done INTEGER,
  outcome TEXT
) STRICT;

CREATE TABLE turns (
  dataset TEXT NOT NULL REFERENCES processes (id),
  model INTEGER NOT NULL REFERENCES models (id),
  turn INTEGER NOT NULL,
  PRIMARY KEY (dataset, model)
) STRICT;

CREATE TABLE ticks (job TEXT PRIMARY KEY, last INTEGER NOT NULL) STRICT;
"""
