/* A client that sends into given memory of the receiver's node, which clients in Python cannot.

   placed CHANNEL LENGTH ROOM: sends LENGTH bytes to the channel with this base64 descriptor, into a
   new allocation of ROOM bytes in the default pool. Prints an error, or "placed" if the bytes
   arrived there. */

#include <dragon/channels.h>
#include <dragon/utils.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checked(dragonError_t code, const char *what)
{
    if (code != DRAGON_SUCCESS)
        printf("%s: %s\n", what, dragon_get_rc_string(code));
    return code != DRAGON_SUCCESS;
}

int main(int count, char **arguments)
{
    dragonMemoryPoolDescr_t pool;
    dragonMemoryDescr_t data, place;
    dragonMessage_t message;
    dragonChannelDescr_t channel;
    dragonChannelSerial_t serial;
    dragonChannelSendh_t handle;
    timespec_t limit = {20, 0};
    void *sent, *placed;

    if (count != 4)
        return 2;
    size_t length = strtoul(arguments[2], NULL, 10), room = strtoul(arguments[3], NULL, 10);
    serial.data = dragon_base64_decode(arguments[1], &serial.len);
    if (checked(dragon_memory_pool_attach_default(&pool), "pool")
        || checked(dragon_channel_register_gateways_from_env(), "gateways")
        || checked(dragon_channel_attach(&serial, &channel), "channel")
        || checked(dragon_channel_sendh(&channel, &handle, NULL), "handle")
        || checked(dragon_chsend_open(&handle), "open")
        || checked(dragon_memory_alloc(&data, &pool, length), "data")
        || checked(dragon_memory_alloc(&place, &pool, room), "place")
        || checked(dragon_memory_get_pointer(&data, &sent), "pointer")
        || checked(dragon_memory_get_pointer(&place, &placed), "pointer"))
        return 1;
    for (size_t at = 0; at < length; at++)
        ((unsigned char *)sent)[at] = at % 251;
    memset(placed, 255, room);
    if (checked(dragon_channel_message_init(&message, &data, NULL), "message")
        || checked(dragon_chsend_send_msg(&handle, &message, &place, &limit), "send"))
        return 1;
    puts(memcmp(sent, placed, length) == 0 ? "placed" : "elsewhere");
    return 0;
}
