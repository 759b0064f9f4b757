%% Plays scenarios against the real supervisor and prints what happened. Input and output: one Erlang term a line.
%%
%% In:  {Id, {Strategy, Intensity, AutoShutdown}, [Child], [Batch]}, where
%%      Child = {Name, Restart, Significant, [attempts that fail], Shutdown, milliseconds to end, Nested}; if it is nested,
%%      it is a supervisor with intensity 0 and one permanent child, which logs and crashes under its name.
%%      Batch = [Step], Step = {crash, Name, Why} | {stop | restart | delete, Name} | {start, Child} | children.
%% Out: {Id, [What]}, What = {started | start_failed, Name} | {crash | stopping, Name, Why} | {start_link, Error}
%%      | {result, ok | error} | {children, [{Name, up | undefined}]} | stop_supervisor | {supervisor_exit, Reason}.
%%
%% The steps of one batch reach the supervisor while it is suspended (sys:suspend), so that it finds them in its queue
%% in that order. After a batch it is left alone until nothing is being restarted. What happens is written to a table by
%% the process to which it happens, before that process goes on: nothing is written out of order.
-module(played).
-export([main/0, init/1, start_it/4, child/3]).

main() ->
    logger:set_primary_config(level, none),
    case io:read('') of
        eof -> halt(0);
        {ok, Scenario} -> io:format("~w.~n", [play(Scenario)]), main()
    end.

play({Id, Flags, Children, Batches}) ->
    ets:new(trace, [named_table, public, ordered_set]),
    ets:new(attempts, [named_table, public]),
    ets:new(pids, [named_table, public]),
    {Runner, Monitor} = spawn_monitor(fun() -> run(Flags, Children, Batches) end),
    receive {'DOWN', Monitor, process, Runner, Why} -> Why = normal end,
    Trace = [What || {_, What} <- ets:tab2list(trace)],
    [ets:delete(Table) || Table <- [trace, attempts, pids]],
    {Id, Trace}.

run(Flags, Children, Batches) ->
    process_flag(trap_exit, true),
    case supervisor:start_link(?MODULE, {Flags, Children}) of
        {ok, Sup} ->
            settle(Sup),
            [batch(Sup, Batch) || Batch <- Batches, is_process_alive(Sup)],
            [begin log(stop_supervisor), exit(Sup, shutdown) end || is_process_alive(Sup)],
            receive {'EXIT', Sup, Why} -> log({supervisor_exit, Why}) end;
        {error, Why} = Error ->
            log({start_link, Error}),
            log({supervisor_exit, Why})
    end.

init({nested, Spec}) ->
    {ok, {#{intensity => 0, period => 5}, [Spec]}};
init({{Strategy, Intensity, AutoShutdown}, Children}) ->
    Flags = #{strategy => Strategy, intensity => Intensity, period => 5, auto_shutdown => AutoShutdown},
    {ok, {Flags, [spec(Child) || Child <- Children]}}.

spec({Name, Restart, Significant, Failing, Shutdown, Slow, true}) ->
    Below = spec({Name, permanent, false, Failing, Shutdown, Slow, false}),
    Start = {supervisor, start_link, [?MODULE, {nested, Below}]},
    #{id => Name, start => Start, restart => Restart, significant => Significant, type => supervisor,
      shutdown => infinity};
spec({Name, Restart, Significant, Failing, Shutdown, Slow, false}) ->
    Start = {?MODULE, start_it, [Name, make_ref(), Failing, Slow]},
    #{id => Name, start => Start, restart => Restart, significant => Significant, shutdown => Shutdown}.

%% ------------------------------------------------------------ children

start_it(Name, Spec, Failing, Slow) ->
    Attempt = ets:update_counter(attempts, Spec, 1, {Spec, 0}),
    case lists:member(Attempt, Failing) of
        true -> log({start_failed, Name}), {error, nope};
        false -> proc_lib:start_link(?MODULE, child, [self(), Name, Slow])
    end.

child(Parent, Name, Slow) ->
    process_flag(trap_exit, true),
    ets:insert(pids, {Name, self(), Parent}),
    log({started, Name}),
    proc_lib:init_ack({ok, self()}),
    receive
        {crash, Why} ->
            log({crash, Name, Why}),
            exit(Why);
        {'EXIT', Parent, Why} ->
            timer:sleep(Slow),
            log({stopping, Name, Why}),
            exit(Why)
    end.

log(What) ->
    ets:insert(trace, {ets:update_counter(attempts, trace, 1, {trace, 0}), What}).

%% ------------------------------------------------------------ steps

batch(Sup, [children]) ->
    log({children, listed(Sup)});
batch(Sup, Steps) ->
    sys:suspend(Sup),
    Requests = [step(Sup, Step) || Step <- Steps],
    catch sys:resume(Sup),
    [receive {Request, Result} -> log({result, Result}) end || Request <- Requests, is_reference(Request)],
    settle(Sup).

step(Sup, {crash, Name, Why}) ->
    case ets:lookup(pids, Name) of
        [{Name, Pid, Parent}] ->
            case is_process_alive(Pid) of
                true ->
                    Pid ! {crash, Why},
                    Ended = case Parent of Sup -> Pid; _ -> Parent end, % a nested supervisor gives up
                    in_queue(Sup, fun({'EXIT', From, _}) -> From =:= Ended; (_) -> false end);
                false -> nothing
            end;
        [] -> nothing
    end;
step(Sup, {start, Child}) -> request(Sup, fun() -> supervisor:start_child(Sup, spec(Child)) end);
step(Sup, {stop, Name}) -> request(Sup, fun() -> supervisor:terminate_child(Sup, Name) end);
step(Sup, {restart, Name}) -> request(Sup, fun() -> supervisor:restart_child(Sup, Name) end);
step(Sup, {delete, Name}) -> request(Sup, fun() -> supervisor:delete_child(Sup, Name) end).

request(Sup, Call) ->
    Me = self(),
    Request = make_ref(),
    Asker = spawn(fun() -> Me ! {Request, result(catch Call())} end),
    in_queue(Sup, fun({'$gen_call', {From, _}, _}) -> From =:= Asker; (_) -> false end),
    Request.

result(ok) -> ok;
result({ok, _}) -> ok;
result({error, _}) -> error;
result({'EXIT', _}) -> error.

%% Wait until a message that fits is in the queue of the (suspended) supervisor.
in_queue(Sup, Fits) ->
    {messages, Messages} = process_info(Sup, messages),
    case lists:any(Fits, Messages) of
        true -> ok;
        false -> erlang:yield(), in_queue(Sup, Fits)
    end.

%% Wait until nobody waits to be restarted, or the supervisor has ended.
settle(Sup) ->
    case catch supervisor:which_children(Sup) of
        {'EXIT', _} -> over;
        Children ->
            case lists:keymember(restarting, 2, Children) of
                true -> settle(Sup);
                false -> ok
            end
    end.

listed(Sup) ->
    case catch supervisor:which_children(Sup) of
        {'EXIT', _} -> [];
        Children -> [{Name, up(Pid)} || {Name, Pid, _, _} <- Children]
    end.

up(Pid) when is_pid(Pid) -> up;
up(Other) -> Other.
