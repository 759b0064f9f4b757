-- Version 1 of the tables, in a schema of their own. A later version only adds; see schema.py.
--
-- Names of things are compared byte by byte (collate "C"): their order and their indexes must not depend on the server's locale.
-- Times of nodes are timestamps of the server; all others are ms since the epoch, as files have them.

create table pegasus.version (
  number int not null,            -- version of these tables
  mark text not null default ''   -- mark of the move that has filled them
);
insert into pegasus.version (number) values (1);

create sequence pegasus.node_ids;
create table pegasus.node (
  id bigint primary key default nextval('pegasus.node_ids'),  -- another one for each registration
  name text collate "C" not null unique,
  address text not null, version text not null, settings text not null, instance text not null,
  tables int not null,                                        -- newest version of the tables that its program knows
  until timestamptz not null,                                 -- end of its lease
  is_draining bool not null default false
);

create table pegasus.connection (
  node bigint not null,
  type text collate "C" not null,
  channel_id text collate "C" not null,
  is_whole bool not null,         -- a bridge or an adapter of the whole type; channel_id is '' then
  number bigint not null,         -- of the newest call of the node that told of it
  primary key (type, channel_id, is_whole, node)
);

-- One row for each owner key: it is locked first by each transaction that writes for the key.
create table pegasus.owned (
  key text collate "C" primary key,
  kind text collate "C" not null generated always as (split_part(key, '/', 1)) stored,
  token bigint not null default 0,  -- fencing token
  owner bigint,                     -- node; it owns the key while it lives
  due_at timestamptz,               -- since when an item of it waits; null: none does
  last_n bigint not null default 0  -- number of its newest item
) with (fillfactor = 70);
create index owned_due on pegasus.owned (due_at) where due_at is not null;
create index owned_by on pegasus.owned (owner) where owner is not null;

create sequence pegasus.item_numbers;
create table pegasus.item (
  n bigint primary key,
  key text collate "C" not null,
  type text collate "C" not null, channel_id text collate "C" not null,
  dedupe text collate "C" not null unique,
  message text not null,            -- '' when it was done long ago
  lane text collate "C" not null, priority int not null,
  at bigint not null,
  is_owners bool not null, sender text not null, is_apart bool not null, is_internal bool not null,
  discarded int not null default 0, -- of a report: items that it took the place of
  done_at bigint                    -- null: it is not done
) with (fillfactor = 80);
create index item_open on pegasus.item (key, n) where done_at is null;
create index item_lane on pegasus.item (lane, is_owners) where done_at is null;
create index item_done on pegasus.item (done_at) where done_at is not null;

create sequence pegasus.seen_order;
create table pegasus.address (
  type text collate "C" not null, channel_id text collate "C" not null,
  escaped text collate "C" not null,          -- channel_id as a model sees it
  heard text not null default '',             -- account of the one guest who was heard, '*' for several
  seen bigint not null,                       -- grows with each time that it is seen
  primary key (type, channel_id)
) with (fillfactor = 80);
create index address_seen on pegasus.address (seen);
create index address_id on pegasus.address (channel_id);
create index address_escaped on pegasus.address (escaped);

create table pegasus.numbering (
  type text collate "C" not null, channel_id text collate "C" not null,
  last bigint not null, acked bigint not null default 0,
  primary key (type, channel_id)
) with (fillfactor = 70);
create index numbering_open on pegasus.numbering (type, channel_id) where acked < last;

create table pegasus.reply (
  key text collate "C" primary key,
  type text collate "C" not null, channel_id text collate "C" not null, seq bigint not null,
  channel text not null,            -- JSON
  message text not null,            -- JSON; '' when it was acknowledged long ago
  at bigint not null,
  request text not null,            -- request that has posted it
  unique (type, channel_id, seq)
);
create index reply_at on pegasus.reply (at);

-- A file is lines or content. Lines name it by number, so that a rename moves none of them.
create sequence pegasus.file_ids;
create table pegasus.file (
  id bigint primary key default nextval('pegasus.file_ids'),
  path text collate "C" not null unique,
  lines bigint not null default 0,
  size bigint not null default 0,   -- bytes
  content bytea,                    -- null: it consists of lines
  at bigint not null                -- last change
) with (fillfactor = 70);
alter table pegasus.file alter column content set storage external;  -- most of it is compressed already
create table pegasus.line (
  file bigint not null, no bigint not null, body text not null,
  primary key (file, no)
);

create table pegasus.collection (
  name text collate "C" not null, owner text collate "C" not null, version bigint not null,
  primary key (name, owner)
);
create sequence pegasus.row_places;
create table pegasus.row (
  collection text collate "C" not null, owner text collate "C" not null, key text collate "C" not null,
  place bigint not null default nextval('pegasus.row_places'),
  body text not null,
  primary key (collection, owner, key)
);

create table pegasus.budget (name text collate "C" primary key, spent double precision not null default 0);
create table pegasus.reservation (
  budget text collate "C" not null, id text collate "C" not null,
  node bigint not null, amount double precision not null,
  settled_at timestamptz,
  primary key (budget, id)
);

-- Requests that were done and could not be told from new ones by what they have left.
create table pegasus.request (
  id text collate "C" primary key,
  result bigint not null,
  at timestamptz not null default now()
);
create index request_at on pegasus.request (at);

-- ------------------------------------------------------------------ functions
--
-- Each is one transaction of tables.py. Errors of their own: PG001 the lease is lost, PG002 somebody else has changed it. A statement
-- of a function sees what others have committed before it began, so what is read behind a lock is the newest.

create function pegasus.ms() returns bigint language sql volatile as
$$ select (extract(epoch from clock_timestamp()) * 1000)::bigint $$;

create function pegasus.lives(node_id bigint) returns bool language sql volatile as
$$ select exists (select from pegasus.node where id = node_id and until > clock_timestamp()) $$;

-- Tell the nodes that listen.
create function pegasus.tell(kind text, payload text) returns void language sql volatile as
$$ select pg_notify('pegasus', kind || ' ' || payload) $$;

-- Lock the rows of these leases in the order of their keys. True if each is the newest.
create function pegasus.are_held(lease_keys text[], tokens bigint[]) returns bool language plpgsql as $$
declare present bigint;
begin
  if cardinality(lease_keys) = 0 then return true; end if;
  if cardinality(lease_keys) = 1 then
    select token into present from pegasus.owned where key = lease_keys[1] for update;
    return present is not distinct from tokens[1];
  end if;
  return cardinality(lease_keys) = (select count(*) from (
    select from pegasus.owned o join unnest(lease_keys, tokens) as l(key, token) on o.key = l.key and o.token = l.token
    order by o.key for update of o) as found);
end $$;

create function pegasus.lose_lease() returns void language plpgsql as
$$ begin raise exception 'the lease is lost' using errcode = 'PG001'; end $$;

-- Lock the row of an owner key, which is made if there is none. Returns its owner.
create function pegasus.hold(wanted text) returns bigint language plpgsql as $$
declare found_owner bigint;
begin
  select owner into found_owner from pegasus.owned where key = wanted for update;
  if not found then
    insert into pegasus.owned (key) values (wanted) on conflict do nothing;
    select owner into found_owner from pegasus.owned where key = wanted for update;
  end if;
  return found_owner;
end $$;

create function pegasus.register(
  new_name text, new_address text, new_version text, new_settings text, new_instance text, known int, lease interval
) returns bigint language plpgsql as $$
declare present pegasus.node; new_id bigint;
begin
  insert into pegasus.node (name, address, version, settings, instance, tables, until)
    values (new_name, new_address, new_version, new_settings, new_instance, known, clock_timestamp() + lease)
    on conflict do nothing returning id into new_id;
  if found then return new_id; end if;
  select * into present from pegasus.node where name = new_name for update;
  if present.until > clock_timestamp() then
    if present.instance <> new_instance or new_instance = '' then return null; end if;
    update pegasus.node set until = clock_timestamp() + lease where id = present.id;
    return present.id;
  end if;
  new_id := nextval('pegasus.node_ids');
  update pegasus.owned set owner = null where owner = present.id;
  delete from pegasus.connection where node = present.id;
  update pegasus.node set id = new_id, address = new_address, version = new_version, settings = new_settings,
    instance = new_instance, tables = known, until = clock_timestamp() + lease, is_draining = false where id = present.id;
  return new_id;
end $$;

create function pegasus.give_back(node_id bigint, keys text[], tokens bigint[]) returns void language plpgsql as $$
declare each record; told int := 0;
begin
  for each in update pegasus.owned o set owner = null from (
      select key from pegasus.owned join unnest(keys, tokens) as given (key, token) using (key, token)
      where owner = node_id order by key for update of owned) as mine
    where o.key = mine.key returning o.key, o.due_at loop
    -- A notice costs all nodes; those who hear of many look for the others by themselves.
    if each.due_at is not null and told < 100 then
      perform pegasus.tell('due', each.key);
      told := told + 1;
    end if;
  end loop;
end $$;

create function pegasus.leave(node_id bigint) returns void language plpgsql as $$
begin
  perform pegasus.give_back(node_id, array_agg(key), array_agg(token)) from pegasus.owned where owner = node_id;
  delete from pegasus.connection where node = node_id;
  delete from pegasus.node where id = node_id;
end $$;

-- Take due keys whose owner does not live, those that have waited for longest.
create function pegasus.take(node_id bigint, kinds text[], most int, control_only bool)
  returns table (key text, token bigint) language plpgsql as $$
begin
  if not pegasus.lives(node_id) then return; end if;
  return query with taken as (update pegasus.owned o set owner = node_id, token = o.token + 1 from (
      select d.key from pegasus.owned d
      where d.due_at is not null and d.kind = any (kinds)
        and (d.owner is null or not d.owner = any (array(select id from pegasus.node where until > clock_timestamp())))
        and (not control_only or exists (select from pegasus.item i where i.key = d.key and i.lane = 'control' and i.done_at is null))
      order by d.due_at limit most for update skip locked) as due
    where o.key = due.key returning o.key, o.token, o.due_at)
    select t.key, t.token from taken t order by t.due_at, t.key;
end $$;

create function pegasus.claim(node_id bigint, wanted text) returns bigint language plpgsql as $$
declare present bigint := pegasus.hold(wanted); new_token bigint;
begin
  if pegasus.lives(node_id) and (present is null or present = node_id or not pegasus.lives(present)) then
    update pegasus.owned set owner = node_id, token = token + 1 where key = wanted returning token into new_token;
  end if;
  return new_token;
end $$;

create function pegasus.connect(
  node_id bigint, call_number bigint, types text[], channel_ids text[], escaped_ids text[], is_connected bool
) returns void language plpgsql as $$
begin
  if not is_connected then
    delete from pegasus.connection c using unnest(types, channel_ids) as p(type, id)
      where c.node = node_id and c.type = p.type and c.is_whole = (p.id is null) and c.channel_id = coalesce(p.id, '')
        and c.number < call_number;
    return;
  end if;
  insert into pegasus.connection as c (node, type, channel_id, is_whole, number)
    select node_id, p.type, coalesce(p.id, ''), p.id is null, call_number from unnest(types, channel_ids) as p(type, id)
    on conflict (type, channel_id, is_whole, node) do update set number = greatest(c.number, excluded.number);
  insert into pegasus.address (type, channel_id, escaped, seen)
    select distinct on (p.type, p.id) p.type, p.id, p.escaped, nextval('pegasus.seen_order')
    from unnest(types, channel_ids, escaped_ids) as p(type, id, escaped) where p.id is not null order by p.type, p.id
    on conflict (type, channel_id) do update set seen = excluded.seen;
end $$;

-- Who was heard at an address, whose row is locked if there is one.
create function pegasus.heard(a_type text, a_id text) returns text language plpgsql as $$
declare words text;
begin
  select a.heard into words from pegasus.address a where a.type = a_type and a.channel_id = a_id for update;
  return coalesce(words, '');
end $$;

-- What an item is, as an argument of functions.
create type pegasus.new_item as (
  key text, type text, channel_id text, escaped text, dedupe text, message text, lane text, priority int, at bigint, is_owners bool,
  sender text, max_of_sender int, is_apart bool, is_internal bool, heard text, hears text
);

create function pegasus.put_item(i pegasus.new_item, discards int) returns bigint language plpgsql as $$
declare new_n bigint := nextval('pegasus.item_numbers');
begin
  insert into pegasus.item (n, key, type, channel_id, dedupe, message, lane, priority, at, is_owners, sender, is_apart, is_internal, discarded)
    values (new_n, i.key, i.type, i.channel_id, i.dedupe, i.message, i.lane, i.priority, i.at, i.is_owners, i.sender, i.is_apart,
      i.is_internal, discards);
  insert into pegasus.address (type, channel_id, escaped, heard, seen)
    values (i.type, i.channel_id, i.escaped, i.hears, nextval('pegasus.seen_order'))
    on conflict (type, channel_id) do update set heard = excluded.heard, seen = excluded.seen;
  update pegasus.owned set last_n = new_n, due_at = coalesce(due_at, clock_timestamp()) where key = i.key;
  return new_n;
end $$;

-- Outcome 'accepted' (n, previous), 'duplicate' (n), 'heard' (words), 'waiting' or 'sender' (n).
create function pegasus.accept(node_id bigint, i pegasus.new_item, max_waiting int)
  returns table (outcome text, number bigint, previous_n bigint, words text) language plpgsql as $$
declare owner_id bigint := pegasus.hold(i.key); known bigint; was bigint; found_heard text;
begin
  select n into known from pegasus.item where dedupe = i.dedupe;
  if found then return query select 'duplicate', known, 0::bigint, ''; return; end if;
  found_heard := pegasus.heard(i.type, i.channel_id);
  if found_heard <> i.heard then return query select 'heard', 0::bigint, 0::bigint, found_heard; return; end if;
  select count(*) into known from (select from pegasus.item where done_at is null and lane = i.lane and is_owners = i.is_owners
    limit max_waiting) as found;
  if known >= max_waiting then return query select 'waiting', known, 0::bigint, ''; return; end if;
  if i.max_of_sender > 0 then
    select count(*) into known from pegasus.item
      where done_at is null and lane = i.lane and is_owners = i.is_owners and sender = i.sender;
    if known >= i.max_of_sender then return query select 'sender', known, 0::bigint, ''; return; end if;
  end if;
  select last_n into was from pegasus.owned where key = i.key;
  known := pegasus.put_item(i, 0);
  if owner_id is distinct from node_id then perform pegasus.tell('due', i.key); end if;
  return query select 'accepted', known, was, '';
end $$;

-- Outcome 'dropped' (number of items), 'known', 'heard' (words).
create function pegasus.discard(
  node_id bigint, i pegasus.new_item, before_n bigint, most_priority int, senders text[], spared bigint[], lease_keys text[], tokens bigint[]
) returns table (outcome text, number bigint, words text) language plpgsql as $$
declare is_held bool := pegasus.are_held(lease_keys, tokens); owner_id bigint := pegasus.hold(i.key); dropped bigint[]; found_heard text;
begin
  if exists (select from pegasus.item where dedupe = i.dedupe) then return query select 'known', 0::bigint, ''; return; end if;
  if not is_held then perform pegasus.lose_lease(); end if;
  found_heard := pegasus.heard(i.type, i.channel_id);
  if found_heard <> i.heard then return query select 'heard', 0::bigint, found_heard; return; end if;
  select array_agg(n) into dropped from pegasus.item
    where done_at is null and key = i.key and lane = 'main' and type = i.type and channel_id = i.channel_id and is_apart = i.is_apart and n < before_n
      and priority <= most_priority and n <> all (spared) and (senders is null or (sender = any (senders) and not is_owners));
  if dropped is null then return query select 'dropped', 0::bigint, ''; return; end if;
  update pegasus.item set done_at = pegasus.ms() where n = any (dropped);
  perform pegasus.put_item(i, cardinality(dropped));
  if owner_id is distinct from node_id then perform pegasus.tell('due', i.key); end if;
  return query select 'dropped', cardinality(dropped)::bigint, '';
end $$;

create function pegasus.note(
  ns bigint[], lease_keys text[], tokens bigint[], ats bigint[], types text[], channel_ids text[], seqs bigint[]
) returns void language plpgsql as $$
declare keys text[];
begin
  if cardinality(ns) > 0 then
    select array_agg(distinct key) into keys from pegasus.item where n = any (ns) and done_at is null;
    perform from pegasus.owned where key = any (keys || lease_keys) order by key for update;
    update pegasus.item i set done_at = d.at from unnest(ns, lease_keys, tokens, ats) as d(n, lease_key, token, at)
      where i.n = d.n and i.done_at is null and (d.lease_key is null
        or exists (select from pegasus.owned o where o.key = d.lease_key and o.token = d.token));
    update pegasus.owned o set due_at = null where key = any (keys) and due_at is not null
      and not exists (select from pegasus.item i where i.key = o.key and i.done_at is null);
  end if;
  if cardinality(types) > 0 then
    perform from pegasus.numbering n join unnest(types, channel_ids) as a(type, channel_id) using (type, channel_id)
      order by n.type, n.channel_id for update of n;
    update pegasus.numbering n set acked = a.seq from unnest(types, channel_ids, seqs) as a(type, channel_id, seq)
      where n.type = a.type and n.channel_id = a.channel_id and a.seq > n.acked and a.seq <= n.last;
  end if;
end $$;

-- A durable step as an argument. It is JSON because a client writes that in a tenth of the time of arrays.
create type pegasus.step as (
  request_id text, node_id bigint, lease_keys text[], tokens bigint[],
  is_named bool,                                            -- a repetition is recognised by its request, and not by what it has left
  expected bigint,                                          -- lines of the first file before it, or null
  paths text[], counts int[], sizes bigint[], bodies text[],  -- files; the lines of all of them, one file behind the other
  post_keys text[], types text[], channel_ids text[], channels text[], messages text[], ats bigint[]
);

-- True if the first file of a step has the lines of it already.
create function pegasus.has_lines(s pegasus.step) returns bool language sql volatile as $$
  select s.expected is not null and s.counts[1] > 0 and not exists (
    select from unnest(s.bodies[:s.counts[1]]) with ordinality as u(b, o)
      left join pegasus.line l on l.file = (select id from pegasus.file where path = s.paths[1]) and l.no = s.expected + o
    where l.body is distinct from b)
$$;

create function pegasus.commit(asked jsonb)
  returns table (seq bigint, is_new bool, is_acked bool, channel text, message text) language plpgsql as $$
declare
  s pegasus.step := jsonb_populate_record(null::pegasus.step, asked);
  is_held bool := pegasus.are_held(s.lease_keys, s.tokens);
  is_done bool := false; sent int := 0; place int; file_id bigint; has bigint; known record; new_seq bigint;
begin
  if s.is_named then
    insert into pegasus.request (id, result) values (s.request_id, 0) on conflict do nothing;
    is_done := not found;
  end if;
  if not is_held and not is_done then
    is_done := case cardinality(s.paths)
      when 0 then exists (select from pegasus.reply r where r.key = s.post_keys[1] and r.request = s.request_id)
      else pegasus.has_lines(s) end;
    if not is_done then perform pegasus.lose_lease(); end if;
  end if;
  for place in 1 .. cardinality(s.paths) loop
    exit when is_done;
    insert into pegasus.file as f (path, lines, size, at) values (s.paths[place], s.counts[place], s.sizes[place], pegasus.ms())
      on conflict (path) do update set lines = f.lines + excluded.lines, size = f.size + excluded.size, at = excluded.at
        where place > 1 or s.expected is null or f.lines = s.expected
      returning id, lines into file_id, has;
    if place = 1 and has is distinct from s.expected + s.counts[1] and s.expected is not null then
      is_done := has is null and pegasus.has_lines(s);
      exit when is_done;
      raise exception '% has % lines and not %', s.paths[1],
        coalesce((select f.lines from pegasus.file f where f.path = s.paths[1]), 0), s.expected using errcode = 'PG002';
    end if;
    insert into pegasus.line (file, no, body) select file_id, has - s.counts[place] + o, b
      from unnest(s.bodies[sent + 1 : sent + s.counts[place]]) with ordinality as u(b, o);
    sent := sent + s.counts[place];
  end loop;
  for place in 1 .. cardinality(s.post_keys) loop
    select r.seq, r.channel, r.message, r.request = s.request_id as is_own, coalesce(r.seq <= n.acked, false) as acked into known
      from pegasus.reply r left join pegasus.numbering n on n.type = r.type and n.channel_id = r.channel_id
      where r.key = s.post_keys[place];
    if found then
      return query select known.seq, known.is_own, known.acked, known.channel, known.message;
      continue;
    end if;
    insert into pegasus.numbering as n (type, channel_id, last) values (s.types[place], s.channel_ids[place], 1)
      on conflict (type, channel_id) do update set last = n.last + 1 returning n.last into new_seq;
    insert into pegasus.reply (key, type, channel_id, seq, channel, message, at, request) values (s.post_keys[place], s.types[place],
      s.channel_ids[place], new_seq, s.channels[place], s.messages[place], s.ats[place], s.request_id);
    if exists (select from pegasus.connection c join pegasus.node d on d.id = c.node and d.until > clock_timestamp()
      where c.type = s.types[place] and c.node <> s.node_id and (c.is_whole or c.channel_id = s.channel_ids[place])) then
      perform pegasus.tell('reply', s.types[place] || ':' || s.channel_ids[place]);
    end if;
    return query select new_seq, true, false, null::text, null::text;
  end loop;
end $$;

-- Let a file hold these lines, or this content.
create function pegasus.replace(
  to_path text, bodies text[], bytes bytea, written_at bigint, lease_keys text[], tokens bigint[]
) returns void language plpgsql as $$
declare file_id bigint; new_size bigint;
begin
  if not pegasus.are_held(lease_keys, tokens) then perform pegasus.lose_lease(); end if;
  select coalesce(octet_length(bytes), sum(octet_length(b) + 1), 0) into new_size from unnest(bodies) as u(b);
  insert into pegasus.file as f (path, lines, size, content, at) values (to_path, cardinality(bodies), new_size, bytes, written_at)
    on conflict (path) do update set lines = excluded.lines, size = excluded.size, content = excluded.content, at = excluded.at
    returning id into file_id;
  delete from pegasus.line where file = file_id;
  insert into pegasus.line (file, no, body) select file_id, o, b from unnest(bodies) with ordinality as u(b, o);
end $$;

create function pegasus.archive(
  request_id text, from_path text, to_path text, bodies text[], bytes bytea, written_at bigint, lease_keys text[], tokens bigint[]
) returns bool language plpgsql as $$
declare is_held bool := pegasus.are_held(lease_keys, tokens);
begin
  perform from pegasus.file where path in (from_path, to_path) order by path for update;
  if exists (select from pegasus.request where id = request_id) then return true; end if;
  if not is_held then perform pegasus.lose_lease(); end if;
  if exists (select from pegasus.file where path = to_path) then return false; end if;
  insert into pegasus.request (id, result) values (request_id, 1);
  update pegasus.file set path = to_path where path = from_path;
  perform pegasus.replace(from_path, bodies, bytes, written_at, lease_keys, tokens);
  return true;
end $$;

create function pegasus.remove(gone text[]) returns void language plpgsql as $$
begin
  perform from pegasus.file where path = any (gone) order by path for update;
  delete from pegasus.line l using pegasus.file f where f.path = any (gone) and l.file = f.id;
  delete from pegasus.file where path = any (gone);
end $$;

create function pegasus.put_rows(
  request_id text, of_name text, of_owner text, keys text[], bodies text[], gone text[], expected bigint
) returns bigint language plpgsql as $$
declare present bigint; before bigint;
begin
  insert into pegasus.collection (name, owner, version) values (of_name, of_owner, 0) on conflict do nothing;
  select version into present from pegasus.collection where name = of_name and owner = of_owner for update;
  select result into before from pegasus.request where id = request_id;
  if found then return before; end if;
  if present <> expected then raise exception 'the rows have version %, not %', present, expected using errcode = 'PG002'; end if;
  delete from pegasus.row where collection = of_name and owner = of_owner and key = any (gone);
  insert into pegasus.row as r (collection, owner, key, body)
    select of_name, of_owner, k, b from unnest(keys, bodies) with ordinality as u(k, b, o) order by o
    on conflict (collection, owner, key) do update set body = excluded.body;
  update pegasus.collection set version = present + 1 where name = of_name and owner = of_owner;
  insert into pegasus.request (id, result) values (request_id, present + 1);
  perform pegasus.tell('rows', of_name || case of_owner when '' then '' else '/' || of_owner end);
  return present + 1;
end $$;

create function pegasus.reserve(node_id bigint, of_budget text, new_id text, new_amount double precision, most double precision)
  returns double precision language plpgsql as $$
declare used double precision; reserved double precision;
begin
  insert into pegasus.budget (name) values (of_budget) on conflict do nothing;
  select spent into used from pegasus.budget where name = of_budget for update;
  if exists (select from pegasus.reservation where budget = of_budget and id = new_id and (settled_at is not null or pegasus.lives(node))) then
    return null;
  end if;
  select coalesce(sum(r.amount), 0) into reserved from pegasus.reservation r join pegasus.node n on n.id = r.node
    where r.budget = of_budget and r.settled_at is null and n.until > clock_timestamp();
  if used + reserved + new_amount > most then return used; end if;
  insert into pegasus.reservation (budget, id, node, amount) values (of_budget, new_id, node_id, new_amount)
    on conflict (budget, id) do update set node = excluded.node, amount = excluded.amount;
  return null;
end $$;

create function pegasus.settle(of_budget text, old_id text, amount_spent double precision) returns void language plpgsql as $$
begin
  insert into pegasus.budget (name) values (of_budget) on conflict do nothing;
  perform from pegasus.budget where name = of_budget for update;
  insert into pegasus.reservation as r (budget, id, node, amount, settled_at) values (of_budget, old_id, 0, 0, clock_timestamp())
    on conflict (budget, id) do update set settled_at = clock_timestamp() where r.settled_at is null;
  if found then update pegasus.budget set spent = spent + amount_spent where name = of_budget; end if;
end $$;

-- Forget so many of each kind of what nobody asks for any more: requests, settlements and nodes after a day, messages and replies that
-- have arrived after a month, as far as these are not among the last 50,000 messages. Returns whether there may be more.
create function pegasus.forget(most int) returns bool language plpgsql as $$
declare
  a_day_ago timestamptz := clock_timestamp() - interval '1 day'; a_month_ago bigint := pegasus.ms() - 30 * 86400000::bigint;
  gone int; dead bigint[]; more bool := false;
begin
  delete from pegasus.request where id in (select id from pegasus.request where at < a_day_ago limit most for update skip locked);
  get diagnostics gone = row_count;
  more := more or gone = most;
  delete from pegasus.item where n in (
    select n from pegasus.item where done_at < a_month_ago and n < (select max(n) - 50000 from pegasus.item) limit most for update skip locked);
  get diagnostics gone = row_count;
  more := more or gone = most;
  delete from pegasus.reply where key in (
    select r.key from pegasus.reply r join pegasus.numbering n on n.type = r.type and n.channel_id = r.channel_id and r.seq <= n.acked
    where r.at < a_month_ago limit most for update of r skip locked);
  get diagnostics gone = row_count;
  more := more or gone = most;
  delete from pegasus.reservation where settled_at < a_day_ago;
  select array_agg(id) into dead from pegasus.node where until < a_day_ago;
  update pegasus.owned set owner = null where owner = any (dead);
  delete from pegasus.reservation where node = any (dead) and settled_at is null;
  delete from pegasus.connection where node = any (dead);
  delete from pegasus.node where id = any (dead);
  return more;
end $$;
