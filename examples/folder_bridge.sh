#!/usr/bin/env bash
# A bridge in shell: a file that appears in in/ becomes a message, and each reply becomes a file in out/. It needs websocat and jq.
#
#     pegasus token add folder --type folder --bridge
#     PEGASUS_TOKEN=… examples/folder_bridge.sh FOLDER
#     echo "What is the weather?" > FOLDER/in/anna.weather      # anna asks; the answer is FOLDER/out/anna.1
#
# The name of a file in in/ is the person, a dot, and a name for the message: the same name is the same message. Write a file elsewhere and
# move it here, so that it is whole. It is moved to done/ when the message is on the agent's disk, or to refused/ with the reason in its log.
# A reply is acknowledged when its file is on disk. So nothing gets lost, whichever of the programs is killed; start it again.
set -euo pipefail

folder=${1:?which folder?}
url=${PEGASUS_URL:-ws://127.0.0.1:7717}
: "${PEGASUS_TOKEN:?the token of the bridge}"
mkdir -p "$folder"/{in,out,done,refused,acks}

# Messages to the gateway: the greeting, then a frame for each file, again every few seconds until it is answered.
speak() {
    jq -nc --arg token "$PEGASUS_TOKEN" '{type: "hello", token: $token, channel: {type: "folder"}}'
    while :; do
        for file in "$folder"/in/*.*; do
            [ -f "$file" ] || continue
            name=${file##*/}
            if [ -n "$(find "$file" -size +500k 2>/dev/null)" ]; then
                echo "$name is too large" >&2
                mv -f "$file" "$folder/refused/$name"
                continue
            fi
            jq -c --null-input --rawfile text "$file" --arg id "$name" --arg person "${name%%.*}" \
                '{type: "message", id: $id, text: $text, channel: {type: "folder", channelId: $person, userId: $person}}' \
                2>/dev/null || : # it was accepted and moved meanwhile
        done
        for ack in "$folder"/acks/*; do
            [ -f "$ack" ] || continue
            cat "$ack"
            rm "$ack"
        done
        sleep "${PEGASUS_PAUSE:-2}"
    done
}

# Frames from the gateway.
hear() {
    while IFS= read -r frame; do
        case $(jq -r .type <<< "$frame") in
            accepted)
                name=$(jq -r .id <<< "$frame")
                mv -f "$folder/in/$name" "$folder/done/$name" 2>/dev/null || : ;;
            reply)
                person=$(jq -r '.channel.channelId | gsub("[^A-Za-z0-9_-]"; "_")' <<< "$frame")
                file="$folder/out/$person.$(jq -r .seq <<< "$frame")"
                jq -r .text <<< "$frame" > "$file.new"
                sync "$file.new"
                mv "$file.new" "$file"
                jq -c '{type: "ack", seq, channel: {type: .channel.type, channelId: .channel.channelId}}' <<< "$frame" > "$file.new"
                mv "$file.new" "$folder/acks/${file##*/}" ;;
            error)
                echo "the agent refuses: $(jq -r .message <<< "$frame")" >&2
                code=$(jq -r .code <<< "$frame")
                [ "$code" != unauthorized ] || exit 1
                name=$(jq -r '.id // ""' <<< "$frame")
                if [ -n "$name" ] && [ "$code" != overloaded ] && [ "$code" != internal ]; then
                    mv -f "$folder/in/$name" "$folder/refused/$name" 2>/dev/null || :
                fi ;;
        esac
    done
}

# One process speaks and one hears, on a connection that is made again whenever it is lost.
pipe=$folder/.to-gateway
trap 'kill $(jobs -p) 2>/dev/null' EXIT
while :; do
    # A new one each time: a jq that still runs must not write before the greeting of the next connection.
    rm -f "$pipe"
    mkfifo "$pipe"
    speak > "$pipe" &
    hear < <(exec websocat --protocol pegasus.v1 --text --no-close --exit-on-eof "$url" < "$pipe") || :
    kill $(jobs -p) 2>/dev/null || :
    wait
    echo "no connection to the agent; trying again" >&2
    sleep "${PEGASUS_PAUSE:-2}"
done
