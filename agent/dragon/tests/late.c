/* A client that does not take the answer to its request, like a process that is not scheduled for
   too long.

   late CHANNEL: the base64 descriptor of a channel. Prints the descriptor to be put into a gateway,
   then "answered", then "given up" once the agent has given up: taking the answer would now return
   DRAGON_CHANNEL_GATEWAY_TRANSPORT_WAIT_TIMEOUT. */

#include <dragon/channels.h>
#include <dragon/utils.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static int checked(dragonError_t code, const char *what)
{
    if (code != DRAGON_SUCCESS)
        printf("%s: %s\n", what, dragon_get_rc_string(code));
    return code != DRAGON_SUCCESS;
}

int main(int count, char **arguments)
{
    dragonMemoryPoolDescr_t pool;
    dragonChannelDescr_t channel;
    dragonChannelSerial_t serial;
    dragonGatewayMessage_t message;
    dragonGatewayMessageSerial_t request;
    timespec_t once = {0, 0};

    if (count != 2)
        return 2;
    serial.data = dragon_base64_decode(arguments[1], &serial.len);
    if (checked(dragon_memory_pool_attach_default(&pool), "pool")
        || checked(dragon_channel_attach(&serial, &channel), "channel")
        || checked(dragon_channel_gatewaymessage_event_create(&pool, DRAGON_CHANNEL_POLLOUT, &channel, &once, &message),
                   "request")
        || checked(dragon_channel_gatewaymessage_serialize(&message, &request), "serialize"))
        return 1;
    printf("%s\n", dragon_base64_encode(request.data, request.len));
    fflush(stdout);
    if (checked(dragon_bcast_wait(&message._cmplt_bcast, DRAGON_IDLE_WAIT, NULL, NULL, NULL, NULL, NULL), "wait"))
        return 1;
    printf("answered\n");
    fflush(stdout);
    while (atomic_load(message._header.client_cmplt) == 0)
        usleep(1000);
    printf("given up\n");
    return 0;
}
