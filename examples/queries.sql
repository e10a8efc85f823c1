-- Questions for the sqlite3 shell (SQLite 3.34 or newer):
--
--     sqlite3 -readonly ~/.hermes/state.db < examples/queries.sql
--
-- Read only. Who must write from a shell: the triggers keep the full-text indexes, the counters of
-- sessions are yours to keep. docs/file-format.md tells what is in each column.

-- The latest sessions.
SELECT id, source, datetime(started_at, 'unixepoch', 'localtime') AS started, message_count, title
FROM sessions ORDER BY started_at DESC LIMIT 10;

-- Tokens and cost by model.
SELECT model, count(*) AS sessions, total(input_tokens) AS tokens_in, total(output_tokens) AS tokens_out,
       round(total(estimated_cost_usd), 4) AS cost
FROM sessions WHERE model IS NOT NULL GROUP BY model ORDER BY cost DESC, tokens_in DESC LIMIT 10;

-- A search by words; a search by any three or more letters in a row.
SELECT m.session_id, m.role, snippet(messages_fts, 0, '>>>', '<<<', '...', 20) AS found
FROM messages_fts JOIN messages m ON m.id = messages_fts.rowid
WHERE messages_fts MATCH 'docker OR topic' ORDER BY rank LIMIT 10;

SELECT m.session_id, m.role, substr(m.content, 1, 80) AS begins
FROM messages_fts_trigram JOIN messages m ON m.id = messages_fts_trigram.rowid
WHERE messages_fts_trigram MATCH '"opic"' ORDER BY m.id DESC LIMIT 10;

-- The tools that are called most.
SELECT json_extract(call.value, '$.function.name') AS tool, count(*) AS calls
FROM messages m, json_each(m.tool_calls) call
WHERE m.tool_calls IS NOT NULL AND json_valid(m.tool_calls)
GROUP BY tool ORDER BY calls DESC LIMIT 10;

-- Each session with the one that it continues, deepest first.
WITH RECURSIVE line(id, root, depth) AS (
    SELECT id, id, 0 FROM sessions WHERE parent_session_id IS NULL
    UNION
    SELECT s.id, line.root, line.depth + 1 FROM sessions s JOIN line ON s.parent_session_id = line.id
    WHERE line.depth < 1000
)
SELECT root, id, depth FROM line WHERE depth > 0 ORDER BY depth DESC, root LIMIT 10;

-- Messages that programs of this package have not indexed yet (a moment later: none).
SELECT count(*) AS pending FROM messages
WHERE id > (SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = 'hermes_state.indexed_through');
